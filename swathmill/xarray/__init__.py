"""Granules as xarray's datasets: the engine "swathmill", and the accessor of that name.

xarray finds the engine by itself, and then the accessor is there. It needs the extra
`swathmill[xarray]`.
"""

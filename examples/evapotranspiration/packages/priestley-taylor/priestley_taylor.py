"""Evapotranspiration of one day: `priestley_taylor.py INPUT_DIR OUTPUT_DIR`.

Sources: C. H. B. Priestley and R. J. Taylor (1972), On the assessment of surface heat flux and
evaporation using large-scale parameters, Monthly Weather Review 100, 81-92. R. G. Allen and others
(1998), Crop evapotranspiration, FAO Irrigation and Drainage Paper 56; its equations are numbered
here. The temperature of the surface stands for that of the air.
"""
# ruff: noqa: T201 - a package prints to the attempt's log, which its owner reads

import json
import sys
from datetime import date
from pathlib import Path

import numpy as np
import rasterio
from rasterio.warp import transform

PRIESTLEY_TAYLOR = 1.26
STEFAN_BOLTZMANN = 4.903e-9  # MJ K-4 m-2 day-1
SOLAR_CONSTANT = 0.0820  # MJ m-2 min-1
PSYCHROMETRIC = 0.665e-3 * 101.3  # kPa per degree, at sea level, equation 8
LATENT_HEAT = 2.45  # MJ kg-1
HARGREAVES = 0.16  # inland, equation 50
CANOPY = 0.5  # extinction of net radiation in leaves
LAND = (*range(1, 13), 14)  # classes of the IGBP with vegetation


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    parameters = json.loads((source / "parameters.json").read_text("utf-8"))
    layers = {band["layer"]: band for band in manifest["bands"]}
    with rasterio.open(source / layers["LST_Day_1km"]["file"]) as like:
        profile = dict(like.profile)
        latitude = latitudes(like)
    cover = read(source, layers["LC_Type1"])
    et = evapotranspiration(
        day=date.fromisoformat(layers["LST_Day_1km"]["date"]),
        latitude=latitude,
        warmest=read(source, layers["LST_Day_1km"]),
        coldest=read(source, layers["LST_Night_1km"]),
        albedo=read(source, layers["Albedo_WSA_shortwave"]),
        leaves=read(source, layers["Lai_500m"]),
        soil=float(parameters.get("soil", 0.3)),
    )
    et[~np.isin(cover, LAND)] = np.nan
    profile.update(driver="GTiff", dtype="float32", count=1, nodata=np.nan, predictor=3)
    with rasterio.open(target / "et.tif", "w", **profile) as out:
        out.write(et.astype(np.float32), 1)
        out.set_band_unit(1, "mm")
    print(f"{np.isfinite(et).mean():.1%} of the pixels have a value")


def read(folder: Path, band: dict[str, object]) -> np.ndarray:
    """Return one band in physical units, NaN where it has no value."""
    number = int(str(band["band"]))
    with rasterio.open(folder / str(band["file"])) as stack:
        stored = stack.read(number, masked=True).astype(np.float64)
        scale, offset = stack.scales[number - 1], stack.offsets[number - 1]
    return (stored * scale + offset).filled(np.nan)


def latitudes(raster: rasterio.DatasetReader) -> np.ndarray:
    """Return the latitude of each row's pixels in radians; they do not depend on the column."""
    rows = np.arange(raster.height)
    x, y = rasterio.transform.xy(raster.transform, rows, np.zeros_like(rows))
    _, north = transform(raster.crs, "EPSG:4326", x, y)
    return np.radians(north)[:, None]


def evapotranspiration(
    *,
    day: date,
    latitude: np.ndarray,
    warmest: np.ndarray,
    coldest: np.ndarray,
    albedo: np.ndarray,
    leaves: np.ndarray,
    soil: float,
) -> np.ndarray:
    """Return mm of a day, of temperatures in kelvin and latitudes in radians."""
    extraterrestrial = radiation_above(day, latitude)
    clear = 0.75 * extraterrestrial  # equation 37, at sea level
    swing = np.sqrt(np.maximum(warmest - coldest, 0.0))
    solar = np.minimum(HARGREAVES * swing * extraterrestrial, clear)
    vapour = saturation(coldest - 273.16)  # equation 48
    warmth = STEFAN_BOLTZMANN * (warmest**4 + coldest**4) / 2
    longwave = warmth * (0.34 - 0.14 * np.sqrt(vapour)) * (1.35 * solar / clear - 0.35)  # 39
    net = np.maximum((1 - albedo) * solar - longwave, 0.0)
    mean = (warmest + coldest) / 2 - 273.16
    slope = 4098 * saturation(mean) / (mean + 237.3) ** 2  # equation 13
    canopy = 1 - np.exp(-CANOPY * leaves)
    share = canopy + soil * (1 - canopy)
    return PRIESTLEY_TAYLOR * slope / (slope + PSYCHROMETRIC) * net / LATENT_HEAT * share


def saturation(celsius: np.ndarray) -> np.ndarray:
    """Return the saturation vapour pressure in kPa, equation 11."""
    return 0.6108 * np.exp(17.27 * celsius / (celsius + 237.3))


def radiation_above(day: date, latitude: np.ndarray) -> np.ndarray:
    """Return the radiation above the air in MJ m-2 day-1, equations 21 to 25."""
    angle = 2 * np.pi * day.timetuple().tm_yday / 365
    distance = 1 + 0.033 * np.cos(angle)
    declination = 0.409 * np.sin(angle - 1.39)
    sunset = np.arccos(np.clip(-np.tan(latitude) * np.tan(declination), -1, 1))
    high = sunset * np.sin(latitude) * np.sin(declination)
    high = high + np.cos(latitude) * np.cos(declination) * np.sin(sunset)
    return 24 * 60 / np.pi * SOLAR_CONSTANT * distance * high


if __name__ == "__main__":
    main()

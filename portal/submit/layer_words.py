"""What the layers of products hold, in words with the usual unit, for names that do not say it."""

import re
from functools import cache

_BANDS = {
    1: "red, 620 to 670 nm",
    2: "near infrared, 841 to 876 nm",
    3: "blue, 459 to 479 nm",
    4: "green, 545 to 565 nm",
    5: "1230 to 1250 nm",
    6: "1628 to 1652 nm",
    7: "2105 to 2155 nm",
}
_SENTENCES: tuple[tuple[str, str, str], ...] = (
    (r"Lai(_\d+k?m)?", "leaf area index", "m^2/m^2"),
    (r"LaiStdDev(_\d+k?m)?", "leaf area index, standard deviation", "m^2/m^2"),
    (r"Fpar(_\d+k?m)?", "share of photosynthetically active radiation absorbed", ""),
    (r"FparStdDev(_\d+k?m)?", "share of radiation absorbed, standard deviation", ""),
    (r".*\bNDVI", "normalized difference vegetation index", ""),
    (r".*\bEVI", "enhanced vegetation index", ""),
    (r".*\bEVI2", "enhanced vegetation index without blue", ""),
    (r"LST_Day\w*", "land surface temperature by day", "K"),
    (r"LST_Night\w*", "land surface temperature by night", "K"),
    (r"LST", "land surface temperature", "K"),
    (r"LST_err\w*", "land surface temperature, uncertainty", "K"),
    (r"Emis_(\d+)(_1km)?", r"emissivity, band \1", ""),
    (r"Emis_(\d+)_err", r"emissivity, band \1, uncertainty", ""),
    (r"Clear_(day|night)_cov\w*", r"share of clear sky by \1", ""),
    (r"Day_view_time\w*", "local solar time of the view by day", "h"),
    (r"Night_view_time\w*", "local solar time of the view by night", "h"),
    (r"Day_view_angl\w*", "zenith angle of the view by day", "degrees"),
    (r"Night_view_angl\w*", "zenith angle of the view by night", "degrees"),
    (r"ET_\w+", "evapotranspiration of the composite's days", "kg/m^2"),
    (r"PET_\w+", "potential evapotranspiration of the composite's days", "kg/m^2"),
    (r"LE_\w+", "latent heat flux", "J/m^2/day"),
    (r"PLE_\w+", "potential latent heat flux", "J/m^2/day"),
    (r"Gpp_\w+", "gross primary production of the composite's days", "kg/m^2"),
    (r"Npp_\w+", "net primary production of the year", "kg/m^2"),
    (r"PsnNet_\w+", "net photosynthesis of the composite's days", "kg/m^2"),
    (r"(CGF_|Daily_)?NDSI_Snow_Cover|NDSI", "normalized difference snow index", ""),
    (r"Burn Date", "day of the year on which it burned", ""),
    (r"First Day", "first day of the year with a reliable observation", ""),
    (r"Last Day", "last day of the year with a reliable observation", ""),
    (r"MaxFRP", "greatest fire radiative power", "MW"),
    (r"LC_Type1", "land cover, IGBP", ""),
    (r"LC_Type2", "land cover, University of Maryland", ""),
    (r"LC_Type3", "land cover, by leaf area", ""),
    (r"LC_Type4", "land cover, by BIOME-BGC", ""),
    (r"LC_Type5", "land cover, plant functional types", ""),
    (r"Albedo_BSA_(\w+)", r"black-sky albedo, \1", ""),
    (r"Albedo_WSA_(\w+)", r"white-sky albedo, \1", ""),
    (r"Nadir_Reflectance_(\w+)", r"reflectance as seen from the nadir, \1", ""),
    (r"BRDF_Albedo_Parameters_(\w+)\[0\]", r"reflectance model, isotropic, \1", ""),
    (r"BRDF_Albedo_Parameters_(\w+)\[1\]", r"reflectance model, volumetric, \1", ""),
    (r"BRDF_Albedo_Parameters_(\w+)\[2\]", r"reflectance model, geometric, \1", ""),
    (r"Optical_Depth_0(47|55)", r"aerosol optical depth at 0.\1 µm", ""),
    (r"AOD_550_Dark_Target_Deep_Blue_Combined", "aerosol optical depth at 0.55 µm", ""),
    (r"Optical_Depth_Land_And_Ocean", "aerosol optical depth at 0.55 µm", ""),
    (r"sst_dtime", "time from the file's reference time", "s"),
    (r"sses_bias", "bias of the sea surface temperature", "K"),
    (r"sses_standard_deviation", "standard deviation of the sea surface temperature", "K"),
    (r"dt_analysis", "departure from the reference temperature", "K"),
    (r"M(\d\d)", r"band M\1 at the sensor", ""),
    (r"I(\d\d)", r"band I\1 at the sensor", ""),
)
_COMPILED = tuple((re.compile(at), title, units) for at, title, units in _SENTENCES)
_REFLECTANCE = re.compile(r"sur_refl_b0([1-7])(_\d)?")


@cache
def words_of(name: str) -> tuple[str, str]:
    """Return title and usual unit of a layer; "" where its name says it, or nobody knows."""
    band = _REFLECTANCE.fullmatch(name)
    if band is not None:
        return f"surface reflectance, {_BANDS[int(band[1])]}", ""
    for at, title, units in _COMPILED:
        found = at.fullmatch(name)
        if found is not None:
            return found.expand(title), units
    return "", ""

"""Names among a request's results: folders and files a scientist can find their way in."""

from datetime import date

from modis.collection import versioned
from tasks.packages.file_names import free_name, layer_name
from tasks.request.document import ProductChoice


def product_name(choice: ProductChoice) -> str:
    """ "MCD15A2.005"; with the half of the day where one is asked for, "MYD11_L2.006.night".

    A raster is "raster.elevation". The products of a record that stand for one another are
    "ndvi-16day"; where each is by itself, "ndvi-16day.MOD13A2.061".
    """
    if choice.exact is not None:
        return f"raster.{choice.exact.raster.name}"
    half = "" if choice.day_night == "any" else f".{choice.day_night}"
    if choice.part is not None and choice.part.shares_dates:
        return f"{choice.asked}{half}"
    record = "" if choice.part is None else f"{choice.asked}."
    return f"{record}{versioned(choice.name, choice.collection)}{half}"


def moment_name(day: date, time: str) -> str:
    """ "2012-04-13"; of an overpass that began at 10:35, "2012-04-13T1035"."""
    return f"{day}T{time.replace(':', '')}" if time else day.isoformat()


def layer_names(choice: ProductChoice) -> dict[str, str]:
    """Safe names of the layers of a choice, numbered where two would be the same."""
    taken: set[str] = set()
    return {
        layer: free_name(layer_name(choice.asked_layer(layer)), taken)
        for layer in dict.fromkeys(choice.layers)
    }

"""All kinds of specifications. A feature adds its own here, and nowhere else in the bag."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from tasks.bag.site_specs import SiteSpec
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    GroupSpec,
    MosaicSpec,
    OverlapSpec,
    PartsSpec,
    RasterSpec,
    ReduceSpec,
    ReprojectSpec,
)

Spec = Annotated[
    CollectSpec
    | PartsSpec
    | ReprojectSpec
    | RasterSpec
    | MosaicSpec
    | OverlapSpec
    | CubeSpec
    | GroupSpec
    | ReduceSpec
    | SiteSpec,
    Field(discriminator="kind"),
]
_adapter: TypeAdapter[Spec] = TypeAdapter(Spec)


def load_spec(text: str | bytes) -> Spec:
    """Load a specification from JSON; raise pydantic.ValidationError when it is not one."""
    return _adapter.validate_json(text)

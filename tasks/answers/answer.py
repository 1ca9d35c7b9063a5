"""What all models of answers have in common."""

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """An answer of the HTTP API. Its readers leave out fields they do not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")

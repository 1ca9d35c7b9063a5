"""What the portal keeps of the tables for operators' pages."""

from portal.operations.board import Board
from portal.serving.portal import Portal


class Operations:
    """The view of the tables that all open pages share."""

    def __init__(self, portal: Portal) -> None:
        self.board = Board(portal.runtime)

"""Move pixels from tiles and swaths onto a target grid."""

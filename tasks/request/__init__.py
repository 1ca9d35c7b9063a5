"""The request document: its fields, their checks, the region and the target grid."""

"""The classes of other libraries, under their names and with their arguments, on Shoal's engine."""

"""Controls: what selection, chance and another cut would give instead of the effect, and how sure the rest is."""

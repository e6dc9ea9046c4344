"""Figures, drawn from finished tables alone: nothing here needs a model.

``variants`` names a figure's files and tables (and is cheap to import), ``sources`` reads and selects rows, ``summary``
turns them into means of ΔP. One module per kind draws: ``delta_p``, ``interactive`` (the same for a browser),
``auroc``, ``flip_rate``, ``distribution``, ``groups``, ``exclusions``, ``controls``. They share ``over_layers``
(curves), ``canvas`` (panels, sizes), ``legend`` and ``style``. ``kinds`` knows them all, ``save`` writes.
"""

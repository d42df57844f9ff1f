"""The explorer: one HTML file in which an embedding can be walked through.

:mod:`~hkconv.viz.explorer.scene` says what there is to see, :mod:`~hkconv.viz.explorer.run_scene` and
:mod:`~hkconv.viz.explorer.scene` collect it, :mod:`~hkconv.viz.explorer.pca` brings it to the plane and
:mod:`~hkconv.viz.explorer.page` writes the file.
"""

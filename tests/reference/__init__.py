"""An independent simulator in plain Python: what the jitted one must reproduce, part for part.

Nothing here imports jax or the package: it is written from the definitions, with lists and
integers, so that a mistake in the package is not repeated here.
"""

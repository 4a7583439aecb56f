"""Integer division by way of floats is exact where it is used."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.sim.fit import floor_divide, small_floor_divide


def test_small_division_is_exact_for_all_devices_and_shares():
    free, milli = np.arange(1001, dtype=np.int32)[:, None], np.arange(1, 1001, dtype=np.int32)[None, :]
    for divide in (small_floor_divide, jax.jit(small_floor_divide), jax.jit(floor_divide)):
        assert (np.asarray(divide(jnp.asarray(free), jnp.asarray(milli))) == free // milli).all()


def test_division_is_exact_near_multiples_of_large_numbers():
    rng = np.random.default_rng(0)
    divisor = rng.integers(1, 2**20, 20_000).astype(np.int32)
    quotient = rng.integers(0, 2**24 // divisor)
    for shift in (-1, 0, 1):
        numerator = np.clip(quotient * divisor + shift, 0, 2**24 - 1).astype(np.int32)
        got = jax.jit(floor_divide)(jnp.asarray(numerator), jnp.asarray(divisor))
        assert (np.asarray(got) == numerator // divisor).all()

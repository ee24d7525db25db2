"""The demo's numerical kernels: finance, physics, images and signals, written as for numba.

Each gives the same result in Python and as machine code: integers stay below 2**63, nothing divides by zero,
and no option that reorders sums is set. Batches are sized so that a call takes 5 to 100 ms in plain Python.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from demo_compiler import Kernel, njit
from numba import prange

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Batch = tuple[Any, ...]
Random = np.random.Generator

RATE: Final = 0.03


# -- finance -------------------------------------------------------------------------------------------


@njit
def call_prices(spot: Floats, strike: Floats, years: Floats, volatility: Floats, rate: float) -> Floats:
    """Black and Scholes's formula for calls. Not a kernel itself: two kernels call it."""
    price = np.empty(spot.size)
    for i in range(spot.size):
        spread = volatility[i] * math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + (rate + 0.5 * volatility[i] ** 2) * years[i]) / spread
        likely = 0.5 * (1.0 + math.erf(d1 / math.sqrt(2.0)))
        exercised = 0.5 * (1.0 + math.erf((d1 - spread) / math.sqrt(2.0)))
        price[i] = spot[i] * likely - strike[i] * math.exp(-rate * years[i]) * exercised
    return price


@njit
def black_scholes(
    spot: Floats, strike: Floats, years: Floats, volatility: Floats, rate: float = RATE
) -> tuple[Floats, Floats]:
    """Prices of European calls, and of puts by put-call parity."""
    call = call_prices(spot, strike, years, volatility, rate)
    put = np.empty_like(call)
    for i in range(call.size):
        put[i] = call[i] - spot[i] + strike[i] * math.exp(-rate * years[i])
    return call, put


@njit
def implied_volatility(price: Floats, spot: Floats, strike: Floats, years: Floats, rate: float = RATE) -> Floats:
    """The volatility at which Black and Scholes give the market's price, by 30 bisections."""
    low = np.full(price.size, 0.01)
    high = np.full(price.size, 2.0)
    for _ in range(30):
        middle = 0.5 * (low + high)
        at_middle = call_prices(spot, strike, years, middle, rate)
        for i in range(price.size):
            if at_middle[i] > price[i]:
                high[i] = middle[i]
            else:
                low[i] = middle[i]
    found: Floats = 0.5 * (low + high)
    return found


@njit
def american_put(spot: Floats, strike: float, years: float, volatility: float, steps: int) -> Floats:
    """Prices of American puts on a binomial tree (Cox, Ross and Rubinstein)."""
    dt = years / steps
    up = math.exp(volatility * math.sqrt(dt))
    growth = math.exp(RATE * dt)
    probability = (growth - 1.0 / up) / (up - 1.0 / up)
    price = np.empty(spot.size)
    value = np.empty(steps + 1)
    for k in range(spot.size):
        for i in range(steps + 1):
            value[i] = max(strike - spot[k] * up ** (2.0 * i - steps), 0.0)
        for step in range(steps - 1, -1, -1):
            for i in range(step + 1):
                held = (probability * value[i + 1] + (1.0 - probability) * value[i]) / growth
                value[i] = max(held, strike - spot[k] * up ** (2.0 * i - step))
        price[k] = value[0]
    return price


@njit
def asian_option(seed: int, paths: int, steps: int, volatility: float) -> tuple[float, float]:
    """Price and standard error of a call on the average price, by simulation with its own random numbers."""
    state = seed
    dt = 1.0 / steps
    total = 0.0
    squares = 0.0
    for _ in range(paths):
        price = 100.0
        average = 0.0
        for _ in range(steps):
            # Park and Miller's generator: products stay below 2**46, so Python and machine integers agree.
            state = state * 16807 % 2147483647
            u = state / 2147483647.0
            state = state * 16807 % 2147483647
            v = state / 2147483647.0
            gauss = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
            price *= math.exp((RATE - 0.5 * volatility**2) * dt + volatility * math.sqrt(dt) * gauss)
            average += price / steps
        payoff = max(average - 100.0, 0.0)
        total += payoff
        squares += payoff * payoff
    mean = total / paths
    return mean * math.exp(-RATE), math.sqrt(max(squares / paths - mean * mean, 0.0) / paths)


# -- physics -------------------------------------------------------------------------------------------


@njit
def n_body(
    position: Floats, velocity: Floats, mass: Floats, dt: float = 0.01, steps: int = 2
) -> tuple[Floats, Floats, float]:
    """Positions and velocities after some steps under gravity, and the total energy."""
    position, velocity = position.copy(), velocity.copy()
    n = mass.size
    energy = 0.0
    for _ in range(steps):
        energy = 0.0
        for i in range(n):
            for j in range(i + 1, n):
                dx = position[i, 0] - position[j, 0]
                dy = position[i, 1] - position[j, 1]
                dz = position[i, 2] - position[j, 2]
                distance = math.sqrt(dx * dx + dy * dy + dz * dz + 1e-4)
                pull = dt / distance**3
                velocity[i, 0] -= dx * mass[j] * pull
                velocity[i, 1] -= dy * mass[j] * pull
                velocity[i, 2] -= dz * mass[j] * pull
                velocity[j, 0] += dx * mass[i] * pull
                velocity[j, 1] += dy * mass[i] * pull
                velocity[j, 2] += dz * mass[i] * pull
                energy -= mass[i] * mass[j] / distance
        for i in range(n):
            for axis in range(3):
                position[i, axis] += dt * velocity[i, axis]
                energy += 0.5 * mass[i] * velocity[i, axis] ** 2
    return position, velocity, energy


@njit
def heat_equation(start: Floats, steps: int, diffusion: float) -> Floats:
    """Temperatures on a plate with fixed edges, by explicit finite differences."""
    now = start.copy()
    after = start.copy()
    rows, columns = start.shape
    for _ in range(steps):
        for i in range(1, rows - 1):
            for j in range(1, columns - 1):
                flow = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1] - 4.0 * now[i, j]
                after[i, j] = now[i, j] + diffusion * flow
        now, after = after, now
    return now


@njit
def epidemic(days: int, contact: Floats, recovery: float) -> Floats:
    """Peak share of the infected in the SIR model for each contact rate, by a fourth-order Runge-Kutta method."""

    def flow(susceptible: float, infected: float, rate: float) -> tuple[float, float]:
        caught = rate * susceptible * infected
        return -caught, caught - recovery * infected

    peak = np.zeros(contact.size)
    for k in range(contact.size):
        s, i, rate = 0.999, 0.001, contact[k]
        for _ in range(days):
            s1, i1 = flow(s, i, rate)
            s2, i2 = flow(s + 0.5 * s1, i + 0.5 * i1, rate)
            s3, i3 = flow(s + 0.5 * s2, i + 0.5 * i2, rate)
            s4, i4 = flow(s + s3, i + i3, rate)
            s += (s1 + 2.0 * s2 + 2.0 * s3 + s4) / 6.0
            i += (i1 + 2.0 * i2 + 2.0 * i3 + i4) / 6.0
            peak[k] = max(peak[k], i)
    return peak


# -- images --------------------------------------------------------------------------------------------


@njit(parallel=True)  # type: ignore[untyped-decorator]
def mandelbrot(left: float, top: float, width: float, pixels: int, iterations: int) -> Integers:
    """Escape times on a square of the complex plane, its rows in parallel."""
    escape = np.zeros((pixels, pixels), dtype=np.int64)
    for row in prange(pixels):
        for column in range(pixels):
            x0 = left + width * column / pixels
            y0 = top - width * row / pixels
            x, y, n = 0.0, 0.0, 0
            while n < iterations and x * x + y * y <= 4.0:
                x, y = x * x - y * y + x0, 2.0 * x * y + y0
                n += 1
            escape[row, column] = n
    return escape


@njit
def gaussian_blur(image: Floats, radius: int, sigma: float) -> Floats:
    """The image convolved with a Gaussian, rows first, then columns; edges are repeated."""
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    weights /= weights.sum()
    rows, columns = image.shape
    across = np.zeros_like(image)
    blurred = np.zeros_like(image)
    for i in range(rows):
        for j in range(columns):
            for k in range(-radius, radius + 1):
                across[i, j] += weights[k + radius] * image[i, min(max(j + k, 0), columns - 1)]
    for i in range(rows):
        for j in range(columns):
            for k in range(-radius, radius + 1):
                blurred[i, j] += weights[k + radius] * across[min(max(i + k, 0), rows - 1), j]
    return blurred


# -- signals -------------------------------------------------------------------------------------------


@njit
def matrix_profile(series: Floats, window: int) -> tuple[Floats, Integers]:
    """For each window of the series the distance to its nearest other window, and where that is."""
    count = series.size - window + 1
    mean = np.empty(count)
    spread = np.empty(count)
    for i in range(count):
        mean[i] = series[i : i + window].mean()
        spread[i] = series[i : i + window].std()
    best = np.full(count, np.inf)
    where = np.full(count, -1)
    for lag in range(window // 2, count):
        dot = 0.0
        for k in range(window):
            dot += series[k] * series[k + lag]
        for i in range(count - lag):
            j = i + lag
            if i > 0:
                dot += series[i + window - 1] * series[j + window - 1] - series[i - 1] * series[j - 1]
            correlation = (dot - window * mean[i] * mean[j]) / (window * spread[i] * spread[j])
            distance = math.sqrt(max(2.0 * window * (1.0 - correlation), 0.0))
            if distance < best[i]:
                best[i], where[i] = distance, j
            if distance < best[j]:
                best[j], where[j] = distance, i
    return best, where


@njit
def power_spectrum(signal: Floats) -> Floats:
    """Squared magnitudes of the discrete Fourier transform; the length is a power of two."""
    n = signal.size
    bits = 0
    while 1 << bits < n:
        bits += 1
    wave = np.empty(n, dtype=np.complex128)
    for i in range(n):
        mirrored = 0
        for bit in range(bits):
            mirrored |= ((i >> bit) & 1) << (bits - 1 - bit)
        wave[mirrored] = signal[i]
    half = 1
    while half < n:
        for k in range(half):
            turn = math.pi * k / half
            twiddle = complex(math.cos(turn), -math.sin(turn))
            for start in range(k, n, 2 * half):
                even, odd = wave[start], wave[start + half] * twiddle
                wave[start] = even + odd
                wave[start + half] = even - odd
        half *= 2
    power: Floats = wave.real**2 + wave.imag**2
    return power


@njit
def local_maxima(signal: Floats) -> Iterator[int]:
    """The places where the signal is above both neighbours. Not a kernel itself: `find_peaks` iterates over it."""
    for i in range(1, signal.size - 1):
        if signal[i - 1] < signal[i] > signal[i + 1]:
            yield i


@njit
def find_peaks(signal: Floats, apart: int) -> tuple[Integers, Floats]:
    """Places and heights of maxima that are the highest within a distance."""
    places = []
    for i in local_maxima(signal):
        low, high = max(i - apart, 0), min(i + apart + 1, signal.size)
        highest = True
        for j in range(low, high):
            if signal[j] > signal[i]:
                highest = False
                break
        if highest:
            places.append(i)
    found = np.array(places)
    return found, signal[found]


@njit
def rolling_quantiles(values: Floats, window: int) -> Floats:
    """The 5th, 50th and 95th percentile of each window."""
    count = values.size // window
    quantiles = np.empty((count, 3))
    levels = np.array([5.0, 50.0, 95.0])
    for i in range(count):
        quantiles[i] = np.percentile(values[i * window : (i + 1) * window], levels)
    return quantiles


@njit
def blend(smoothing: float, *signals: Floats) -> Floats:
    """The exponentially smoothed average of any number of signals."""
    blended = np.empty(signals[0].size)
    level = 0.0
    for i in range(blended.size):
        total = 0.0
        for signal in signals:
            total += signal[i]
        level += smoothing * (total / len(signals) - level)
        blended[i] = level
    return blended


# -- what the kernels are called with ------------------------------------------------------------------


def contracts(random: Random, count: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Spot, strike, years and volatility of option contracts."""
    spot = random.uniform(80, 120, count)
    return spot, spot * random.uniform(0.8, 1.25, count), random.uniform(0.1, 2, count), random.uniform(0.1, 0.5, count)


def quoted(random: Random, count: int) -> Batch:
    """Prices that some volatility explains: halfway between the bounds without arbitrage."""
    spot, strike, years, _ = contracts(random, count)
    floor = np.maximum(spot - strike * np.exp(-RATE * years), 0)
    return floor + 0.15 * (spot - floor), spot, strike, years


def walk(random: Random, count: int) -> Floats:
    """A random walk with a daily rhythm: what sensors and prices look like."""
    steps: Floats = random.normal(size=count)
    daily: Floats = np.sin(np.arange(count) * (2 * np.pi / 48))
    return steps.cumsum() * 0.3 + 5 * daily


def stars(random: Random) -> Batch:
    """A cluster of bodies."""
    return random.normal(size=(75, 3)), random.normal(size=(75, 3)) * 0.1, random.uniform(0.5, 2, 75)


def plate(random: Random) -> Batch:
    """A plate with hot spots, and how long it cools."""
    return 20 + 60 * (random.random((40, 40)) > 0.9), 8, 0.2


def view(random: Random) -> Batch:
    """A square near the edge of the Mandelbrot set."""
    return -0.75 + random.uniform(-0.02, 0.02), 0.15 + random.uniform(-0.02, 0.02), 0.05, 40, 80


KERNELS: Final = (
    Kernel(black_scholes, lambda random: contracts(random, 8_000)),
    Kernel(implied_volatility, lambda random: quoted(random, 300)),
    Kernel(american_put, lambda random: (random.uniform(80, 120, 4), 100.0, 1.0, random.uniform(0.1, 0.4), 100)),
    Kernel(asian_option, lambda random: (int(random.integers(1, 2**31 - 1)), 450, 50, random.uniform(0.1, 0.4))),
    Kernel(n_body, stars),
    Kernel(heat_equation, plate),
    Kernel(epidemic, lambda random: (180, random.uniform(0.2, 0.9, 30), 0.1)),
    Kernel(mandelbrot, view),
    Kernel(gaussian_blur, lambda random: (random.random((40, 40)), 4, 1.5)),
    Kernel(matrix_profile, lambda random: (walk(random, 240), 24)),
    Kernel(power_spectrum, lambda random: (walk(random, 4096),)),
    Kernel(find_peaks, lambda random: (walk(random, 40_000), 12)),
    Kernel(rolling_quantiles, lambda random: (walk(random, 20_000), 50)),
    Kernel(blend, lambda random: (0.1, *(walk(random, 20_000) for _ in range(5)))),
)

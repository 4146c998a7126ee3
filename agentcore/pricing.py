"""What model calls cost, by the list prices that the extra `prices` brings."""

import logging

from agentcore.errors import ConfigurationError
from agentcore.usage import Usage

logger = logging.getLogger("agentcore.pricing")

_unknown: set[str] = set()  # models that were complained about once


def cost_of(usage: Usage, model: str | None) -> float | None:
    """The cost of tokens in US dollars, as the list prices have it; None if the model or its price is unknown.

    Args:
        usage: what one or more calls of one model took.
        model: the provider's name of the model.

    Raises:
        ConfigurationError: the package with the prices is not installed.
    """
    try:
        import genai_prices
    except ImportError as error:
        raise ConfigurationError(
            "prices need the package genai-prices: pip install 'agentcore-async[prices]'"
        ) from error
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cached_input_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
    )
    try:
        return float(genai_prices.calc_price(counted, model_ref=model or "").total_price)
    except LookupError:
        name = model or ""
        if name not in _unknown:
            _unknown.add(name)
            logger.warning("no price is known for model %r: what it costs is not counted", name)
        return None

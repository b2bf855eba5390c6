"""A paged cache of keys and values: which pages a sequence has is known on the host, pages lie on the device."""

from .cache import PagedKVCache
from .sequence import PagedSequence
from .spec import KVCacheSpec
from .statistics import CacheStatistics

__all__ = ["CacheStatistics", "KVCacheSpec", "PagedKVCache", "PagedSequence"]

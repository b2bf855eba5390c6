"""A paged cache of keys and values. The host manages the pages of each sequence; the pages are in device memory."""

from .cache import PagedKVCache
from .sequence import PagedSequence
from .shared import SharedPrefix
from .spec import KVCacheSpec
from .statistics import CacheStatistics

__all__ = ["CacheStatistics", "KVCacheSpec", "PagedKVCache", "PagedSequence", "SharedPrefix"]

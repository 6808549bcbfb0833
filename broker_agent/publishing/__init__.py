"""What an embedding process hears of the metadata: every swap of the cache, and the assignments of this broker."""

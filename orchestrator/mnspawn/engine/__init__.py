"""asyncio glue between transports, machines and listeners."""

"""The actors in front of the device, and what becomes of its leases when one of them dies."""

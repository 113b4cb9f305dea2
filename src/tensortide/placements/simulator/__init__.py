"""The event simulator of placements: devices with queues of ops, lanes with queues of transfers, memory kept along."""

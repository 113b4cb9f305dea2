"""Operator logs of dynamic tensor rematerialization (DTR): read as a Recording, written from any Graph."""

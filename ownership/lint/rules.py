"""The eight rules: what each is about, and the way out that its findings name."""

from typing import Final

__all__ = ["HELP", "RULES"]

RULES: Final = {
    "OWN001": "used after move",
    "OWN002": "used after a move on some path",
    "OWN003": "dropped: leaves scope live, result ignored, overwritten while live",
    "OWN004": "not owned: a borrowed handle is consumed",
    "OWN005": "captured by what may never run",
    "OWN006": "held across an await",
    "OWN007": "forged or copied",
    "OWN008": "stored in a field that its class does not declare as an owner",
}

HELP: Final = {
    "OWN001": "a handle is single-use: use it before the move, or use what the call gave back",
    "OWN002": "move it on every path or on none, or leave the function where it was moved",
    "OWN003": "end it on every path (by a verb of its port), store it in an `Owns[...]` field, "
    "or return it",
    "OWN004": "mark the parameter `Consume[...]`, take the handle out of its container with "
    "`pop`, or out of its field with `handle, self.f = self.f, None`",
    "OWN005": "end the handle in this function, or let the callee take it out of an owner itself",
    "OWN006": "end the handle before the await, or hand it on in a message",
    "OWN007": "handles come from the verbs of a port, once each; hand the handle itself on",
    "OWN008": "declare the field in the class body as `Owns[...]`",
}

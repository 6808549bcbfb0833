"""What nodes say to each other when one asks in the name of another: keys of gRPC metadata."""

from typing import Final

STAY_HERE: Final = "metaquorum-stay-here"
"""The call is to be answered by the node that it reaches, or refused: set by a controller that hands it on, so that nothing goes
round in a circle, and by who looks for the leader itself."""
PRINCIPAL: Final = "metaquorum-principal-bin"
"""For whom a node asks."""

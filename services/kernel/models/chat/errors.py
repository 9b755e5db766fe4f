"""What can go wrong between us and a chat endpoint. None of them ever holds a key."""

from services.kernel.errors import KernelError


class EndpointError(KernelError):
    boundary = "endpoint"
    pause_s: float | None = None
    """How long the server asks us to wait."""


class EndpointUnavailableError(EndpointError):
    """Too many requests, a fault of the server, no connection or silence, also after every retry."""

    retry = True


class EndpointRefusedError(EndpointError):
    """The endpoint will not serve this: key, model name or a parameter. Asking again changes nothing."""


class AnswerUnreadableError(EndpointError):
    """What came back is no answer of this protocol, also after every retry."""

    retry = True


class ContextOverflowError(EndpointError):
    """The conversation is longer than the model's context."""


class KeyMissingError(EndpointError):
    """The environment variable or file that should hold the endpoint's key does not."""

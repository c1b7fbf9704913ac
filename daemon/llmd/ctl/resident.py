"""The tokens in a session's memory, read from the daemon's shared segment: no request, no wait for its event loop."""

from __future__ import annotations

from dataclasses import dataclass

from llmd.ctl.client import DaemonAbsent, DaemonRefused

TOKENS_PER_LINE = 12


@dataclass(frozen=True)
class Resident:
    slot: int
    owner: int
    state: str
    reason: str
    tokens: list[int]

    def text(self) -> str:
        cells = [str(token) for token in self.tokens]
        lines = [cells[at : at + TOKENS_PER_LINE] for at in range(0, len(cells), TOKENS_PER_LINE)]
        return "\n".join(f"{at * TOKENS_PER_LINE:>7}  {' '.join(line)}" for at, line in enumerate(lines))


def read(socket_path: str, name: str, owner: int | None) -> Resident:
    from llmd import native  # here only: loads libllm, which no other verb needs

    try:
        page = native.Page.open(native.segment_name(socket_path))
    except native.SegmentError as error:
        raise DaemonAbsent(socket_path, "segment", str(error)) from error
    views = [view for view in page.sessions() if view.name == name and owner in (None, view.owner)]
    if len(views) > 1:
        owners = ", ".join(str(view.owner) for view in views)
        raise DaemonRefused(409, {"code": "ambiguous_session", "message": f"several owners have {name}: {owners}"})
    tokens = page.tokens(views[0].slot) if views else None
    if tokens is None:
        raise DaemonRefused(404, {"code": "session_not_found", "message": f"There is no session {name}."})
    view = views[0]
    return Resident(
        view.slot, view.owner, native.STATE_WORDS[view.state], native.REASON_WORDS[view.reason], tokens.tolist()
    )

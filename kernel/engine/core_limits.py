"""What bounds an engine's pools, steps and sessions: functions of its configuration."""

from kernel.config import EngineConfig, ResolvedLimits
from kernel.sessions.active_turn import SessionLimits
from kernel.sessions.history import MOST_MARKS
from kernel.sessions.kept_states import StateCosts
from kernel.sliding import SlidingWindow
from kernel.step import DeviceLimits, ModelSpec
from ownership import Capacity

__all__ = ["device_limits", "host_capacity", "session_limits", "window_of"]


def device_limits(resolved: ResolvedLimits) -> DeviceLimits:
    """What the device allocates, and its largest step."""
    return DeviceLimits(
        resolved.num_slots,
        resolved.num_pages,
        resolved.page_size,
        resolved.max_rows,
        resolved.max_step_tokens,
        resolved.host_slots,
        resolved.host_pages,
    )


def session_limits(
    config: EngineConfig, model: ModelSpec, resolved: ResolvedLimits, *, can_slide: bool
) -> SessionLimits:
    """What a session checks a turn against."""
    pages = resolved.num_pages * resolved.page_size
    by_pages = bool(pages) and pages < resolved.max_model_len
    page_bytes = resolved.page_size * model.page_token_bytes
    return SessionLimits(
        max_len=pages if by_pages else resolved.max_model_len,
        limit_name="num_pages * page_size" if by_pages else "max_model_len",
        page_size=resolved.page_size,
        eos_token_ids=model.eos_token_ids,
        # It may be asked for each of its states at once.
        mail_bound=16 + 8 * config.max_num_queued_reqs + MOST_MARKS,
        num_slots=resolved.num_slots,
        num_pages=resolved.num_pages,
        window=window_of(resolved),
        can_slide=can_slide,
        costs=StateCosts(
            slot_bytes=model.slot_bytes if resolved.num_slots else 0,
            page_bytes=page_bytes if resolved.num_pages else 0,
            max_marked_bytes=config.max_checkpoint_bytes,
        ),
    )


def window_of(resolved: ResolvedLimits) -> SlidingWindow | None:
    """Of two claims of a session that slides, both must fit: the old one is copied from."""
    if not resolved.num_pages:
        return None
    room = resolved.num_pages * resolved.page_size // 2
    return SlidingWindow.fitting(min(room, resolved.max_model_len), resolved.page_size)


def host_capacity(limits: DeviceLimits) -> Capacity | None:
    """Of the ledger's host pool; ``None``: there is none."""
    if not limits.host_slots and not limits.host_pages:
        return None
    return Capacity(limits.host_slots, limits.host_pages, limits.page_size)

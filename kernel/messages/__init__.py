"""Every message of the kernel: concrete, frozen, in one closed union for each addressee.

``carries`` names the fields that are ownership handles; the mailbox moves their custody on every
hop. A lease isn't among them: its custodian is the device from launch to landing, whoever passes
its name along.
"""

from kernel.actors.supervision import Down
from kernel.messages.pool import (
    LaunchStep,
    LaunchTransfer,
    StepCompleted,
    StepOverdue,
    WorkerEnded,
)
from kernel.messages.scheduler import (
    Cancel,
    ClearCache,
    Continue,
    GaveUp,
    Interrupt,
    ReadOutState,
    Rested,
    StepLanded,
    Submit,
    Tick,
)
from kernel.messages.session import (
    AlarmKind,
    CancelReason,
    CancelTurn,
    CloseSession,
    Composed,
    DropMark,
    EndReason,
    Exported,
    ExportSession,
    ForgetIdle,
    GiveUp,
    Hibernate,
    HistoryMessage,
    InterruptTurn,
    Parked,
    PhaseAbsorbed,
    RestoreMark,
    Rewind,
    SetMark,
    StartTurn,
    StateRead,
    StopFound,
    TurnAlarm,
    TurnEnded,
    TurnFailed,
    TurnFinished,
)
from kernel.messages.store import (
    AsksWait,
    FetchState,
    ForgetStored,
    JobDone,
    LogStored,
    ReadStored,
    ReleaseImage,
    StateFetched,
    StateStored,
    StoreLog,
    StoreOverdue,
    StoreState,
)

__all__ = [
    "AlarmKind",
    "Cancel",
    "CancelReason",
    "CancelTurn",
    "ClearCache",
    "CloseSession",
    "Composed",
    "Continue",
    "Down",
    "DropMark",
    "EndReason",
    "ExportSession",
    "Exported",
    "ForgetIdle",
    "GaveUp",
    "GiveUp",
    "Hibernate",
    "HistoryMessage",
    "Interrupt",
    "InterruptTurn",
    "LaunchStep",
    "LaunchTransfer",
    "Parked",
    "PhaseAbsorbed",
    "PoolMessage",
    "ReadOutState",
    "Rested",
    "RestoreMark",
    "Rewind",
    "SchedulerMessage",
    "SessionMessage",
    "SetMark",
    "StartTurn",
    "StateRead",
    "StepCompleted",
    "StepLanded",
    "StepOverdue",
    "StopFound",
    "StoreMessage",
    "Submit",
    "Tick",
    "TurnAlarm",
    "TurnEnded",
    "TurnFailed",
    "TurnFinished",
    "WorkerEnded",
]


SessionMessage = (
    StartTurn
    | Composed
    | CancelTurn
    | InterruptTurn
    | Rewind
    | SetMark
    | RestoreMark
    | DropMark
    | StopFound
    | TurnAlarm
    | ForgetIdle
    | CloseSession
    | TurnFinished
    | TurnEnded
    | TurnFailed
    | PhaseAbsorbed
    | GiveUp
    | Parked
    | StateRead
    | Hibernate
    | ExportSession
    | LogStored
    | StateStored
    | StateFetched
    | Down
)

SchedulerMessage = (
    StepLanded
    | Tick
    | Submit
    | Rested
    | Cancel
    | Interrupt
    | Continue
    | GaveUp
    | ReadOutState
    | ClearCache
    | Down
)

PoolMessage = LaunchStep | LaunchTransfer | StepCompleted | StepOverdue | WorkerEnded | Down

StoreMessage = (
    StoreLog
    | StoreState
    | FetchState
    | ReleaseImage
    | ReadStored
    | ForgetStored
    | JobDone
    | StoreOverdue
    | AsksWait
    | Down
)

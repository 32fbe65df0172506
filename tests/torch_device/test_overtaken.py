"""A worker that hung and comes back late touches nothing that others own by then."""

from kernel.step import DeviceStep, TransferStep
from ownership import SlotIndex
from tests.torch_device.moving import Mover, same_bits
from tests.torch_device.test_transfers import begun, slot_of


def test_a_step_that_was_overtaken_poisons_nothing() -> None:
    """What it was told to be free has an owner again; a worker that came after it knows."""
    mover = Mover("hybrid")
    late = mover.device.runner()
    mover.device.runner().run(DeviceStep(6, ()))
    owned = begun(mover)
    before = {name: bits.clone() for name, bits in mover.bits(owned).items()}

    late.run(DeviceStep(5, (), [SlotIndex(slot_of(owned))], owned.pages))

    assert same_bits(mover.bits(owned), before)


def test_a_transfer_that_was_overtaken_poisons_nothing() -> None:
    """The same in host memory."""
    mover = Mover("hybrid")
    late = mover.device.transfer_runner()
    mover.device.transfer_runner().run(TransferStep(6, ()))
    owned = mover.park(begun(mover))
    before = {name: bits.clone() for name, bits in mover.bits(owned).items()}

    late.run(TransferStep(5, (), [SlotIndex(slot_of(owned))], owned.pages))

    assert same_bits(mover.bits(owned), before)

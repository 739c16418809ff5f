"""Checkpoint files that know their own digest."""

import errno
import hashlib
import io
import threading
import zipfile

import pytest
import torch

from support.runs import assert_identical
from trainlattice.checkpoint.durable import digest
from trainlattice.checkpoint.seal import SealedWriter, is_intact, own_fault, save_sealed, seal_of

pytestmark = pytest.mark.torch
CHUNK = 1 << 20
END = b"PK\x05\x06" + bytes(16) + b"\0\0"
"""What ends a zip archive without a comment."""
SEAL = len(b"trainlattice sha256 ") + 64


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("trainlattice")]


@pytest.fixture
def small(tmp_path):
    """A sealed file of a few kilobytes."""
    path = tmp_path / "small.pt"
    save_sealed({"w": torch.arange(40), "step": 3}, path)
    assert path.stat().st_size < 4096
    return path


def changed(path, place, bit=0):
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    other = path.with_name("changed.pt")
    other.write_bytes(data)
    return other


# --- writing


@pytest.mark.parametrize(
    "size", [0, 1, 63, 4097, CHUNK - 23, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 22, 3 * CHUNK + 17]
)
def test_a_file_of_any_size_has_the_digest_that_is_told_and_loads(tmp_path, size):
    path = tmp_path / "last.pt"
    torch.manual_seed(size)
    content = {"w": torch.randint(256, (size,), dtype=torch.uint8), "b": torch.ones(3), "step": 7}
    sha256, written = save_sealed(content, path)
    data = path.read_bytes()
    assert (sha256, written) == (hashlib.sha256(data).hexdigest(), len(data)) == digest(path)
    assert seal_of(path) == hashlib.sha256(data[: -2 - SEAL]).hexdigest()
    assert own_fault(path) is None
    for mmap in (False, True):
        assert_identical(torch.load(path, weights_only=True, mmap=mmap), content)
    assert threads() == []


def test_a_file_of_many_tensors_of_every_size_loads(tmp_path):
    path = tmp_path / "last.pt"
    content = {
        str(n): torch.arange(n, dtype=torch.float32) for n in (0, 1, 7, 1000, CHUNK // 4, CHUNK // 4 + 1)
    }
    assert save_sealed(content, path) == digest(path)
    assert_identical(torch.load(path, weights_only=True), content)


@pytest.mark.parametrize(
    "pieces", [[1], [22], [23, 5], [CHUNK - 1], [CHUNK], [3, CHUNK, 1, CHUNK + 5], [0, 2]]
)
def test_what_is_written_in_pieces_of_any_size_arrives_in_order(pieces):
    data = torch.randint(256, (sum(pieces),), dtype=torch.uint8).numpy().tobytes()
    target, place = io.BytesIO(), 0
    with SealedWriter(target) as writer:
        for size in pieces:
            assert writer.write(memoryview(data)[place : place + size]) == size
            place += size
        writer.write(END)
        sha256 = writer.seal()
    written = target.getvalue()
    assert written.startswith(data + END[:-2] + SEAL.to_bytes(2, "little"))
    assert (len(written), sha256) == (writer.size, hashlib.sha256(written).hexdigest())
    assert written.endswith(hashlib.sha256(data + END[:-2]).hexdigest().encode())


def test_an_end_in_pieces_or_at_the_end_of_a_large_piece_is_found():
    for pieces in ([b"x" * 10, END[:5], END[5:]], [b"x" * CHUNK + END], [b"x" * CHUNK, END[:1], END[1:]]):
        target = io.BytesIO()
        with SealedWriter(target) as writer:
            for piece in pieces:
                writer.write(piece)
            writer.seal()
        whole = b"".join(pieces)
        assert target.getvalue().startswith(whole[:-2])
        assert target.getvalue()[len(whole) :].startswith(b"trainlattice sha256 ")


@pytest.mark.parametrize("end", [b"", b"text", END[:-1], END[:-2] + b"\1\0!", b"x" * 22])
def test_what_ends_like_no_archive_is_not_sealed(end):
    with SealedWriter(io.BytesIO()) as writer:
        writer.write(b"x" * 100 + end)
        with pytest.raises(OSError, match="end of a zip archive"):
            writer.seal()
    assert threads() == []


class Stutters(io.BytesIO):
    """Takes a few bytes at a time, as a file may."""

    def write(self, data):
        return super().write(memoryview(data)[:100_000])


def test_a_file_that_takes_less_than_it_is_given_gets_the_rest(tmp_path):
    target = Stutters()
    with SealedWriter(target) as writer:
        torch.save({"w": torch.arange(CHUNK)}, writer)
        sha256 = writer.seal()
    assert hashlib.sha256(target.getvalue()).hexdigest() == sha256
    target.seek(0)
    assert torch.equal(torch.load(target, weights_only=True)["w"], torch.arange(CHUNK))


@pytest.mark.parametrize("size", [10, 4 * CHUNK])
def test_a_disk_that_is_full_is_an_error(tmp_path, size):
    path = tmp_path / "last.pt"
    path.symlink_to("/dev/full")
    with pytest.raises((OSError, RuntimeError)) as raised:
        save_sealed({"w": torch.ones(size, dtype=torch.uint8)}, path)
    chain, error = [], raised.value
    while error is not None:
        chain.append(getattr(error, "errno", None))
        error = error.__context__
    assert errno.ENOSPC in chain
    assert threads() == []


def test_what_torch_computes_for_others_stays_as_it_was(tmp_path, small):
    """Only files of our own are without its checksums, also after one that could not be written."""
    if not hasattr(torch.serialization, "get_crc32_options"):
        pytest.skip("before torch 2.6")
    assert torch.serialization.get_crc32_options() is True
    with pytest.raises(AttributeError, match="lambda"):
        save_sealed({"f": lambda: 0}, tmp_path / "no.pt")
    assert torch.serialization.get_crc32_options() is True
    assert threads() == []


# --- checking


def test_the_comment_is_all_that_a_zip_reader_sees_of_it(small):
    with zipfile.ZipFile(small) as archive:
        assert archive.comment == b"trainlattice sha256 " + seal_of(small).encode()


def test_a_flipped_bit_is_noticed_wherever_it_is(small):
    size = small.stat().st_size
    end = range(size - SEAL - 18, size - SEAL - 2)
    missed = [
        (place, bit)
        for place in range(size)
        for bit in (0, 7)
        if place not in end and own_fault(changed(small, place, bit)) is None
    ]
    assert missed == []


def test_a_flipped_bit_in_the_record_that_ends_the_archive_is_noticed(small):
    size = small.stat().st_size
    missed = [n for n in range(size - SEAL - 18, size - SEAL - 2) if own_fault(changed(small, n)) is None]
    assert missed == []


@pytest.mark.parametrize("place", [0, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, -SEAL - 23])
def test_a_flipped_bit_in_a_large_file_is_noticed(tmp_path, place):
    path = tmp_path / "large.pt"
    save_sealed({"w": torch.zeros(2 * CHUNK + 1000, dtype=torch.uint8)}, path)
    assert is_intact(path)
    other = changed(path, place)
    assert not is_intact(other)
    assert "its own sha256" in own_fault(other)


def test_a_file_that_was_cut_off_anywhere_is_noticed(small):
    data = small.read_bytes()
    cut = small.with_name("cut.pt")
    missed = []
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        if own_fault(cut) is None:
            missed.append(length)
    assert missed == []


@pytest.mark.parametrize("more", [b"\0", b"more", b"x" * 200])
def test_a_file_to_which_something_was_appended_is_noticed(small, more):
    small.write_bytes(small.read_bytes() + more)
    assert own_fault(small) is not None


def test_a_file_without_a_seal_is_checked_by_the_checksums_of_its_records(tmp_path):
    path = tmp_path / "plain.pt"
    torch.save({"w": torch.arange(1000)}, path)
    assert seal_of(path) is None
    assert own_fault(path) is None
    with zipfile.ZipFile(path) as archive:
        record = next(each for each in archive.infolist() if each.filename.endswith("data/0"))
    found = own_fault(changed(path, record.header_offset + 1000))
    assert found == f"its record {record.filename!r} is damaged"


@pytest.mark.parametrize("data", [b"", b"epoch: 2\n", b"x" * 5000])
def test_what_is_no_archive_is_named(tmp_path, data):
    path = tmp_path / "text.pt"
    path.write_bytes(data)
    assert seal_of(path) is None
    assert own_fault(path).startswith("it is no checkpoint file")


def test_a_file_that_is_gone_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        own_fault(tmp_path / "gone.pt")

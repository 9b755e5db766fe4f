"""What the processes of a sandbox use, and the bounds that an exec sets."""

import os
import resource

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READ_BYTES = 1 << 16
S_IFMT, S_IFREG = 0o170000, 0o100000
FSIZE_SLACK_BYTES = 1 << 16


class Bounds:
    """The limits of one exec, as the host sends them: six numbers in one part, in this order."""

    def __init__(self, text: bytes) -> None:
        numbers = text.split()
        self.cpu_s, self.wall_s = float(numbers[0]), float(numbers[1])
        self.memory_bytes, self.pids, self.disk_bytes, self.output_bytes = map(int, numbers[2:6])

    def apply(self) -> None:
        """The kernel's share, set in the child: rlimits hold per process, so the supervisor watches the tree besides.

        RLIMIT_DATA and not RLIMIT_AS, which refuses interpreters that reserve address space they never touch.
        """
        cpu_s = int(self.cpu_s) + 2
        for kind, soft, hard in (
            (resource.RLIMIT_CPU, cpu_s, cpu_s),
            (resource.RLIMIT_DATA, self.memory_bytes, self.memory_bytes),
            (resource.RLIMIT_NPROC, self.pids + 1, self.pids + 1),
            (resource.RLIMIT_FSIZE, self.disk_bytes + FSIZE_SLACK_BYTES, self.disk_bytes + FSIZE_SLACK_BYTES),
            (resource.RLIMIT_CORE, 0, 0),
            (resource.RLIMIT_NOFILE, 1024, 4096),
            (resource.RLIMIT_STACK, 8 << 20, 64 << 20),
        ):
            ceiling = resource.getrlimit(kind)[1]
            if ceiling != resource.RLIM_INFINITY:
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.setrlimit(kind, (soft, hard))


class OomKills:
    """How many processes the kernel has killed for the memory limit of this container; none where it shows no such
    count.
    """

    PLACES = (b"/sys/fs/cgroup/memory.events", b"/sys/fs/cgroup/memory/memory.oom_control")

    def __init__(self) -> None:
        self._fd = -1
        for place in self.PLACES:
            if self._fd < 0 and read_small(place):
                self._fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)

    def count(self) -> int:
        if self._fd < 0:
            return 0
        lines = [line.split() for line in os.pread(self._fd, READ_BYTES, 0).splitlines()]
        return sum(int(line[1]) for line in lines if line[:1] == [b"oom_kill"])


def live_pids() -> list[bytes]:
    return [name for name in os.listdir(b"/proc") if name.isdigit() and name != b"1"]  # noqa: PTH208


class Usage:
    """What the live processes use now, PID 1 left out. CPU includes their collected children."""

    def __init__(self, names: list[bytes]) -> None:
        self.pids: list[bytes] = []
        self.threads = 0
        ticks = pages = 0
        for name in names:
            line = read_small(b"/proc/" + name + b"/stat")
            if not line:
                continue
            fields = line[line.rindex(b")") + 2 :].split()
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
            self.threads += int(fields[17])
            self.pids.append(name)
        self.cpu_s = ticks / TICKS_PER_S
        self.rss_bytes = pages * PAGE_BYTES

    def over_memory(self, bytes_max: int) -> bool:
        """Resident pages first, being cheap; shared pages are counted once before anything is ended for them."""
        detached = detached_segment_bytes()
        if self.rss_bytes + detached <= bytes_max:
            return False
        return sum(map(proportional_bytes, self.pids)) + detached > bytes_max


def read_small(path: bytes) -> bytes:
    """Up to READ_BYTES of a file of /proc; empty where its process has ended."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def detached_segment_bytes() -> int:
    """System V segments that no process has attached stay in memory all the same."""
    rows = [line.split() for line in read_small(b"/proc/sysvipc/shm").splitlines()[1:]]
    return sum(int(row[14]) for row in rows if len(row) > 14 and row[6] == b"0")


def proportional_bytes(pid: bytes) -> int:
    text = read_small(b"/proc/" + pid + b"/smaps_rollup")
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(b"Pss:"))


def unlinked_bytes(pids: list[bytes]) -> int:
    """Bytes of files that are open and have no name any more: no walk over the tree finds them."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = b"/proc/" + pid + b"/fd/"
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            try:
                status = os.stat(folder + name)  # noqa: PTH116
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_mode & S_IFMT == S_IFREG:
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())

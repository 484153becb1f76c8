//! The thread inside a kept program that brings pages when they are missed and takes away what was not missed for longest.
//!
//! It alone changes the books and it alone asks the kernel to move pages, one thing after another; events of the kernel
//! (memory that is unmapped, moved, given up, forked) are read before anything else is done. While one of them is on its
//! way the kernel refuses to move pages (EAGAIN), so that what the books say of a page is true whenever it is moved.

use core::sync::atomic::Ordering;

use crate::area;
use crate::board::{Board, Slot, Stage, Why};
use crate::faults::Late;
use crate::ranges::Ranges;
use crate::room::{ACTIVE, BATCH, Room, Shared};
use crate::space::Space;
use crate::streams::Streams;
use crate::sys::{self, Errno, File, Mode, PAGE, guard};
use crate::table::Table;

/// What the server is started with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Start {
    /// State that forks and the writer see.
    pub shared: &'static Shared,
    /// What is asked for.
    pub board: &'static Board,
    /// How we say how it stands.
    pub slot: &'static Slot,
    /// The end of the writer's stack.
    pub writer_stack: u64,
    /// The end of memory for what a thread has of its own.
    pub local: u64,
    /// An address of the library's own data.
    pub own_data: u64,
}

/// What we count, in bytes unless it says otherwise.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub came_back: u64,
    pub went_out: u64,
    pub ahead: u64,
    pub behind: u64,
    pub rescued: u64,
    pub faults: u64,
    pub forks: u64,
}

/// Everything that the thread knows.
pub(crate) struct Server {
    pub start: Start,
    pub guard: File,
    pub pagemap: File,
    pub maps: File,
    statm: File,
    pub file: File,
    pub table: Table,
    pub ranges: Ranges,
    pub space: Space,
    pub room: Room,
    pub streams: Streams,
    /// Where the last sweep for pages to take away ended.
    pub hand: u64,
    /// Turns so far: time that goes on only while we do.
    pub turn: u32,
    /// Bytes in DRAM, as last read and counted on.
    pub resident: u64,
    /// How many of them we may have.
    pub goal: u64,
    /// Pages that are in the room or the file.
    pub away: u64,
    /// Turns for which no more is taken away.
    pub pause: u32,
    /// Pages that the kernel would not move, lately.
    pub refusals: u32,
    /// Everything is on its way back, whatever the limit.
    pub all_back: bool,
    /// Events that have overtaken others, in order.
    pub late: [Option<Late>; 32],
    pub counts: Counts,
    pub buffer: &'static mut [u8],
    pub zeros: &'static [u8],
    pub text: &'static mut [u8],
    /// When mappings were last looked at.
    pub registered_at: u32,
    drawn_at: u64,
    read_at: u64,
    calm_since: u32,
}

/// Bytes that are read or filled at once.
pub(crate) const PIECE: u64 = 2 << 20;

fn fail(start: &Start, why: Why, error: Errno) -> ! {
    start.slot.set_stage(Stage::Alone(why, error));
    start.slot.resident.store(0, Ordering::Relaxed);
    sys::exit_thread()
}

/// Reads what a process has in DRAM of its own, in bytes.
fn resident(statm: File) -> Option<u64> {
    let mut text = [0u8; 128];
    let length = sys::read_at(statm, &mut text, 0).ok()?;
    let mut numbers = text.get(..length)?.split(|byte| !byte.is_ascii_digit()).skip(1);
    let mut number = || {
        let digits = numbers.next()?;
        Some(digits.iter().fold(0u64, |n, digit| n.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))))
    };
    let (all, shared) = (number()?, number()?);
    Some(all.saturating_sub(shared) * PAGE)
}

/// The server's thread: watches until the program comes near its limit, and keeps it from then on.
pub extern "C" fn serve(start: u64) -> ! {
    sys::name(b"tiercel-keep\0\0\0\0");
    // SAFETY: whoever starts the thread gives the address of a value that is never unmapped.
    let start: Start = *unsafe { area::at::<Start>(start) };
    // This table of files is a copy of the program's: ends of its pipes must not stay open here.
    let closed = sys::close_all();
    let opened = closed.map_err(|error| (Why::Proc, error)).and_then(|()| {
        let proc = |path| sys::open(path, Mode::Read).map_err(|error| (Why::Proc, error));
        let statm = proc(b"/proc/self/statm\0")?;
        let pagemap = proc(b"/proc/self/pagemap\0")?;
        let maps = proc(b"/proc/self/maps\0")?;
        sys::mapping_at(maps, 0).map_err(|error| (Why::Proc, error))?;
        let guard = guard::new().map_err(|error| (Why::Faults, error))?;
        Ok((statm, pagemap, maps, guard))
    });
    start.shared.ready.store(1, Ordering::Release);
    sys::wake(&start.shared.ready);
    let (statm, pagemap, maps, guard) = match opened {
        Ok(files) => files,
        Err((why, error)) => fail(&start, why, error),
    };
    watch(&start, statm);
    let mut server = match Server::new(start, [statm, pagemap, maps, guard]) {
        Ok(server) => server,
        Err((why, error)) => fail(&start, why, error),
    };
    loop {
        server.keep();
        watch(&start, statm);
    }
}

/// Waits until all processes together come near their limit.
fn watch(start: &Start, statm: File) {
    let fast = start.board.fast.load(Ordering::Relaxed);
    loop {
        let own = resident(statm).unwrap_or(0);
        start.slot.resident.store(own, Ordering::Relaxed);
        start.slot.time.store(sys::own_time(), Ordering::Relaxed);
        let all = start.board.resident();
        let near = fast - fast / 8;
        if all >= near && own >= 4 << 20 {
            return;
        }
        // No program fills memory faster than 2 GB/s for long.
        let pause = near.saturating_sub(all) / 2;
        sys::sleep_while(&start.shared.ready, 1, pause.clamp(2_000_000, 50_000_000));
    }
}

impl Server {
    fn new(start: Start, files: [File; 4]) -> Result<Server, (Why, Errno)> {
        let memory = |error| (Why::Memory, error);
        let [statm, pagemap, maps, guard] = files;
        let mut path = [0u8; 4096];
        let length = start.board.path_for(sys::pid(), &mut path);
        let path = path.get(..length).unwrap_or(&[]);
        // Past the kernel's cache, which would take DRAM for what is not to be in DRAM; some file systems cannot.
        let file = sys::open(path, Mode::NewDirect).or_else(|_| sys::open(path, Mode::New));
        let file = file.map_err(|error| (Why::File, error))?;
        // Whatever happens to the program, nothing is left behind.
        let bytes = start.board.file_bytes.load(Ordering::Relaxed);
        let made = sys::unlink(path).and_then(|()| sys::truncate(file, bytes));
        made.map_err(|error| (Why::File, error))?;
        let fast = start.board.fast.load(Ordering::Relaxed);
        let batches = (fast / 8 / (u64::from(BATCH) * PAGE)).clamp(2, 128) as u32;
        let pages = (bytes / PAGE).min(u64::from(crate::table::MOST)) as u32;
        let server = Server {
            start,
            guard,
            pagemap,
            maps,
            statm,
            file,
            table: Table::new().map_err(memory)?,
            ranges: Ranges::new().map_err(memory)?,
            space: Space::new(pages).map_err(memory)?,
            room: Room::new(start.shared, batches, file).map_err(memory)?,
            streams: Streams::new((fast / 16 / PAGE).clamp(4, PIECE / PAGE) as u32),
            hand: 0,
            turn: 0,
            resident: 0,
            goal: fast,
            away: 0,
            pause: 0,
            refusals: 0,
            all_back: false,
            late: [None; 32],
            counts: Counts::default(),
            buffer: area::zeroed(PIECE as usize).map_err(memory)?,
            zeros: area::zeroed::<u8>(64 * PAGE as usize).map_err(memory)?,
            text: area::zeroed(8192).map_err(memory)?,
            registered_at: 0,
            drawn_at: 0,
            read_at: 0,
            calm_since: 0,
        };
        let shared = core::ptr::from_ref(start.shared) as u64;
        sys::thread(sys::Files::Same, start.writer_stack, start.local, crate::room::write, shared)
            .map_err(|error| (Why::Thread, error))?;
        Ok(server)
    }

    /// Keeps the program until it forks or has been far below its limit for long.
    fn keep(&mut self) {
        let gate = &self.start.shared.gate;
        if gate.compare_exchange(0, ACTIVE, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // A fork is under way.
            sys::sleep_while(&self.start.shared.ready, 1, 2_000_000);
            return;
        }
        let (room, end) = self.room.range();
        let ready =
            sys::forget(room, end - room).and_then(|()| guard::register(self.guard, room, end - room));
        if let Err(error) = ready {
            gate.store(0, Ordering::Release);
            fail(&self.start, Why::Faults, error);
        }
        self.start.slot.set_stage(Stage::Kept);
        self.registered_at = self.turn;
        self.look_at_mappings();
        self.calm_since = self.turn;
        self.measure();
        let mut rung = false;
        while !rung {
            let busy = self.room.is_writing() || self.is_over();
            let pause = if busy { 500_000 } else { 5_000_000 };
            let heard = sys::wait_for(self.guard, pause);
            if heard {
                rung = self.listen();
            }
            if sys::now().wrapping_sub(self.read_at) > 4_000_000 {
                self.turn = self.turn.wrapping_add(1);
                self.pause = self.pause.saturating_sub(1);
                self.measure();
                let unwatched = self.resident > self.goal && self.turn.wrapping_sub(self.registered_at) > 4;
                if unwatched || self.turn.wrapping_sub(self.registered_at) > 49 {
                    self.registered_at = self.turn;
                    self.look_at_mappings();
                }
                if self.is_calm() {
                    break;
                }
            }
            self.make_room(0);
        }
        self.bring_all_back();
        self.let_all_go();
        self.counts.forks += u64::from(rung);
        self.measure();
        self.start.slot.set_stage(Stage::Watched);
        gate.store(0, Ordering::Release);
        // Whoever rang goes on.
        let _ = guard::unregister(self.guard, room, end - room);
        if rung {
            // It forks now, and may soon again.
            sys::sleep_while(&self.start.shared.ready, 1, 20_000_000);
        }
    }

    /// Whether the program has needed far less than its limit for a while, with nothing away.
    fn is_calm(&mut self) -> bool {
        if self.away > 0
            || self.start.board.resident() * 4 > self.start.board.fast.load(Ordering::Relaxed) * 3
        {
            self.calm_since = self.turn;
        }
        self.turn.wrapping_sub(self.calm_since) > 400
    }

    /// Reads how much we have, and says how it stands.
    fn measure(&mut self) {
        self.read_at = sys::now();
        if let Some(bytes) = resident(self.statm) {
            self.resident = bytes;
        }
        let slot = self.start.slot;
        slot.resident.store(self.resident, Ordering::Relaxed);
        let (fast, all) = (self.start.board.fast.load(Ordering::Relaxed), self.start.board.resident());
        if all > fast && self.turn.is_multiple_of(64) {
            // What the dead had is free.
            self.start.board.sweep(sys::is_there);
        }
        // Who has more gives more, down to what it takes to work at all.
        self.goal = if all <= fast {
            self.resident + (fast - all)
        } else {
            (u128::from(fast) * u128::from(self.resident) / u128::from(all.max(1))) as u64
        };
        self.goal = self.goal.max(self.room.capacity() + PIECE);
        let counts = self.counts;
        let pairs = [
            (&slot.away, self.away * PAGE),
            (&slot.came_back, counts.came_back),
            (&slot.went_out, counts.went_out),
            (&slot.ahead, counts.ahead),
            (&slot.behind, counts.behind),
            (&slot.rescued, counts.rescued),
            (&slot.faults, counts.faults),
            (&slot.forks, counts.forks),
            (&slot.time, sys::own_time()),
            (&slot.streams, self.streams.known()),
        ];
        pairs.iter().for_each(|(to, number)| to.store(*number, Ordering::Relaxed));
        let draws = self.start.board.wants_maps.load(Ordering::Relaxed) != 0;
        if draws && self.read_at.wrapping_sub(self.drawn_at) > 500_000_000 {
            self.drawn_at = self.read_at;
            self.draw();
        }
    }

    /// Whether there is more than there should be.
    pub(crate) fn is_over(&self) -> bool {
        self.resident > self.goal
    }

    /// Fills missing pages: how many bytes, and why no more.
    pub(crate) fn fill(&mut self, to: u64, from: u64, bytes: u64) -> (u64, Option<Errno>) {
        let (done, error) = guard::copy(self.guard, to, from, bytes);
        self.resident += done;
        (done, error)
    }
}

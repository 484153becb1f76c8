//! Programs wait where the kernel would end them although there is swap enough.
//!
//! A group at its limit whose pages are all on their way to a slow disk has nothing that could be freed at once, and the
//! kernel ends a process of it ("out of memory") long before the disk has caught up. Here whoever wants memory waits instead,
//! and the keeper lets it go on as soon as there is some: it gives the group a little more for a moment and takes it back.
//! Where swap is really full, the kernel decides, as it does without a keeper.
//!
//! A program must not wait for a keeper that was killed: a shell with nothing to do but to wait for the end of a pipe, which
//! comes when the keeper is gone however it went, takes the limit away then and gives the decision back to the kernel: at the
//! limit and alone it might end the program, as it was seen to do.

use std::io;
use std::process::{Child, Command, Stdio};

use super::group::Group;
use super::swapfile;

/// With less swap than this nothing is gained by waiting.
const FULL: u64 = 1 << 20;

/// Holds a group's processes back from being ended.
pub(super) struct Patience {
    group: Group,
    limit: u64,
    /// How much more than its limit the group has at the moment.
    more: u64,
    watcher: Child,
    on: bool,
}

impl Patience {
    /// From now on processes of this group wait; where that cannot be had, why.
    pub(super) fn new(group: &Group, limit: u64) -> io::Result<Patience> {
        group.wait_when_full(true)?;
        let mut shell = Command::new("/bin/sh");
        // An interrupt at a terminal is for the keeper and its command.
        let script = "trap '' INT TERM HUP; read -r _; echo -1 > \"$1\"; echo 0 > \"$0\"";
        shell.arg("-c").arg(script).arg(group.oom_control()).arg(group.limit_file());
        let watcher = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        match watcher {
            Ok(watcher) => Ok(Patience { group: group.clone(), limit, more: 0, watcher, on: true }),
            Err(error) => {
                group.wait_when_full(false)?;
                Err(error)
            }
        }
    }

    /// Lets whoever waits go on; whether somebody did.
    pub(super) fn step(&mut self) -> bool {
        if !self.on {
            return false;
        }
        if self.group.waits() {
            let free: u64 = swapfile::areas().iter().map(|area| area.bytes.saturating_sub(area.used)).sum();
            self.more = (self.more * 2).max((self.limit / 64).clamp(1 << 20, 16 << 20));
            if free < FULL || self.more > self.limit || self.group.limit(self.limit + self.more).is_err() {
                // A limit that cannot be set leaves the kernel's own way.
                self.on = self.group.wait_when_full(false).is_err();
            }
            return true;
        }
        if self.more > 0 && self.group.limit(self.limit).is_ok() {
            self.more = 0;
        }
        false
    }

    /// Whether the group has more than its limit at the moment.
    pub(super) fn is_over(&self) -> bool {
        self.more > 0
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        // Both fail where the group is gone, and then nobody waits in it.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

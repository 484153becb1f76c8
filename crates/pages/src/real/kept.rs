//! What every way of keeping a program can be asked, whoever moves the bytes.

use std::process::ExitStatus;

use super::leftovers::Found;
use super::session::{Event, Session};
use super::state::State;

/// A program that is kept.
pub trait Kept {
    /// Which mechanism was chosen, in words.
    fn mechanism(&self) -> &str;

    /// What was found of earlier keepers.
    fn found(&self) -> &[Found];

    /// One turn: sleeps a moment and does what there is to do. Events go to `tell`.
    fn step(&mut self, tell: &mut dyn FnMut(Event));

    /// Whether there is still something to keep; the status of a command that has ended.
    fn poll(&mut self) -> Option<Option<ExitStatus>>;

    /// How it stands, with the address space in so many parts, or none.
    fn state(&self, parts: usize) -> State;

    /// How many processes the kernel has ended because fast memory and what is behind it were too little.
    fn ended_for_memory(&self) -> u64;

    /// Asks the command to end.
    fn ask_to_end(&self);

    /// Ends the command, whatever it does.
    fn kill(&mut self);

    /// Ends the keeping: a process that runs on is let go, and everything that was set up is undone.
    fn close(self: Box<Self>) -> Result<(), String>;
}

impl Kept for Session {
    fn mechanism(&self) -> &str {
        &self.mechanism
    }

    fn found(&self) -> &[Found] {
        &self.found
    }

    fn step(&mut self, tell: &mut dyn FnMut(Event)) {
        Session::step(self, tell);
    }

    fn poll(&mut self) -> Option<Option<ExitStatus>> {
        Session::poll(self)
    }

    fn state(&self, parts: usize) -> State {
        Session::state(self, parts)
    }

    fn ended_for_memory(&self) -> u64 {
        Session::ended_for_memory(self)
    }

    fn ask_to_end(&self) {
        Session::ask_to_end(self);
    }

    fn kill(&mut self) {
        Session::kill(self);
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Session::close(*self)
    }
}

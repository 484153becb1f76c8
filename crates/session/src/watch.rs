//! What somebody who waits is told, and how they say that they have waited enough.

/// Whoever waits for a session: a terminal, a program, or nobody.
pub trait Watch: Send + Sync {
    /// Something begins that may take long, in so many steps where that is known. It is over when what is returned goes.
    fn begin(&self, _what: &'static str, _steps: Option<usize>) -> Box<dyn Steps> {
        Box::new(Silent)
    }

    /// Something that whoever reads the results should know, too.
    fn remark(&self, _text: &str) {}

    /// Training begins: from now on whoever ends it early is better off waiting for the iteration that is under way.
    fn learning(&self) {}

    /// So many iterations of training are done, the last with this loss.
    fn learnt(&self, _iteration: u64, _until: u64, _loss: f32) {}

    /// Whether to end early, with what is done by then kept.
    fn stop(&self) -> bool {
        false
    }
}

/// Something that is going on.
pub trait Steps {
    /// A step is done.
    fn tick(&self) {}

    /// What is being done now.
    fn say(&self, _what: &str) {}
}

/// Nobody waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watch for Silent {}

impl Steps for Silent {}

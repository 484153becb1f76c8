//! The executor, and the worlds that it runs in.

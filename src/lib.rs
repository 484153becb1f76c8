//! Run programs that want a lot of fast memory on a little of it.

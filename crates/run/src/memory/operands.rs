//! What a kernel works on: arrays to read, arrays to change, and tuples, arrays and vectors of these.
//!
//! `(&a, &mut b)` becomes `(&[A], &mut [B])` while the kernel runs; element types may differ, and `Vec<&mut Array<T>>` is as
//! many as one likes.

use std::sync::Arc;

use bytemuck::Pod;
use tiercel_core::ObjectId;

use super::array::{Array, Ties};
use crate::stage::View;

/// How a kernel uses an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Change,
    /// What it held is of no use.
    Overwrite,
}

/// One array that a kernel names.
pub struct Named<'a> {
    pub(super) object: ObjectId,
    pub(super) name: &'a Arc<str>,
    pub(super) ties: &'a Arc<Ties>,
    pub(super) purpose: Purpose,
}

/// The bytes of a kernel's arrays, in the order in which they were named.
pub struct Views<'k>(pub(super) std::vec::IntoIter<View<'k>>);

impl<'k> Views<'k> {
    fn read<T: Pod>(&mut self) -> &'k [T] {
        match self.0.next() {
            Some(View::Read(bytes)) => bytemuck::cast_slice(bytes),
            _ => unreachable!("a view for every array, in order"),
        }
    }

    fn write<T: Pod>(&mut self) -> &'k mut [T] {
        match self.0.next() {
            Some(View::Write(bytes)) => bytemuck::cast_slice_mut(bytes),
            _ => unreachable!("a view for every array, in order"),
        }
    }
}

/// Arrays that a kernel can be given; what it gets for them are slices.
pub trait Operands {
    /// What the kernel sees.
    type Slices<'k>;

    /// Names every array, in order.
    fn list<'a>(&'a self, names: &mut Vec<Named<'a>>);

    /// Takes the slices of just those arrays, in the same order.
    fn slices<'k>(&self, views: &mut Views<'k>) -> Self::Slices<'k>;
}

fn named<T>(array: &Array<T>, purpose: Purpose) -> Named<'_> {
    Named { object: array.object, name: &array.name, ties: &array.ties, purpose }
}

impl<T: Pod> Operands for &Array<T> {
    type Slices<'k> = &'k [T];

    fn list<'a>(&'a self, names: &mut Vec<Named<'a>>) {
        names.push(named(self, Purpose::Read));
    }

    fn slices<'k>(&self, views: &mut Views<'k>) -> &'k [T] {
        views.read()
    }
}

impl<T: Pod> Operands for &mut Array<T> {
    type Slices<'k> = &'k mut [T];

    fn list<'a>(&'a self, names: &mut Vec<Named<'a>>) {
        names.push(named(self, Purpose::Change));
    }

    fn slices<'k>(&self, views: &mut Views<'k>) -> &'k mut [T] {
        views.write()
    }
}

/// An array that a kernel writes as a whole: what it held need not be brought, and the slice holds whatever lies there.
#[derive(Debug)]
pub struct Overwrite<'o, T>(pub &'o mut Array<T>);

impl<T: Pod> Operands for Overwrite<'_, T> {
    type Slices<'k> = &'k mut [T];

    fn list<'a>(&'a self, names: &mut Vec<Named<'a>>) {
        names.push(named(self.0, Purpose::Overwrite));
    }

    fn slices<'k>(&self, views: &mut Views<'k>) -> &'k mut [T] {
        views.write()
    }
}

impl<O: Operands> Operands for Vec<O> {
    type Slices<'k> = Vec<O::Slices<'k>>;

    fn list<'a>(&'a self, names: &mut Vec<Named<'a>>) {
        self.iter().for_each(|one| one.list(names));
    }

    fn slices<'k>(&self, views: &mut Views<'k>) -> Self::Slices<'k> {
        self.iter().map(|one| one.slices(views)).collect()
    }
}

impl<O: Operands, const N: usize> Operands for [O; N] {
    type Slices<'k> = [O::Slices<'k>; N];

    fn list<'a>(&'a self, names: &mut Vec<Named<'a>>) {
        self.iter().for_each(|one| one.list(names));
    }

    fn slices<'k>(&self, views: &mut Views<'k>) -> Self::Slices<'k> {
        std::array::from_fn(|at| self[at].slices(views))
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        impl<$($name: Operands),*> Operands for ($($name,)*) {
            type Slices<'k> = ($($name::Slices<'k>,)*);

            fn list<'a>(&'a self, names: &mut Vec<Named<'a>>) {
                $(self.$at.list(names);)*
            }

            fn slices<'k>(&self, views: &mut Views<'k>) -> Self::Slices<'k> {
                ($(self.$at.slices(views),)*)
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

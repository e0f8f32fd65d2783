//! Compile-time parameters of a kernel, whose function runs several times.

/// A compile-time parameter that a run of the function may consume or change.
pub struct Repeated<'a, T>(&'a T);

impl<'a, T> Repeated<'a, T> {
    /// Wraps the parameter.
    pub fn new(parameter: &'a T) -> Repeated<'a, T> {
        Repeated(parameter)
    }
}

/// Parameters that each run gets a copy of; autoref finds this trait before [`RepeatedByReference`].
pub trait RepeatedByClone {
    /// The type of the parameter.
    type Value;
    /// A copy of the parameter.
    fn value(&self) -> Self::Value;
}

impl<T: Clone> RepeatedByClone for Repeated<'_, T> {
    type Value = T;
    fn value(&self) -> T {
        self.0.clone()
    }
}

/// Parameters that cannot be copied: each run gets a reference.
pub trait RepeatedByReference<'a> {
    /// The type of the parameter.
    type Value;
    /// The parameter, by reference.
    fn value(&self) -> &'a Self::Value;
}

impl<'a, T> RepeatedByReference<'a> for &Repeated<'a, T> {
    type Value = T;
    fn value(&self) -> &'a T {
        self.0
    }
}

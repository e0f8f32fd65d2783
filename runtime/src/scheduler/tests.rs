//! Tests of the scheduler, on a fake engine that checks what it is told to do.

mod cases;
mod drafts;
mod fake;
mod random;

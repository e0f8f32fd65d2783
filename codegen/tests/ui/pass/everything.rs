//! The expansion has no warnings and needs no name but those of the prelude.
#![deny(warnings)]
#![deny(unused)]

use bespoke_codegen::prelude::*;

mod shapes {
    pub struct Shape {
        pub rows: u32,
        pub bias: Option<f32>,
    }
}

#[derive(Clone, Copy, Carry)]
struct Acc<T: Scalar> {
    sum: Val<T>,
    #[carry(skip)]
    _rows: u32,
}

#[derive(Clone, Copy, Parameters)]
struct Matrix<T: Scalar> {
    data: Ptr<Global, T>,
    size: [Val<u32>; 2],
}

/// Zeros in the last row.
#[kernel(threads = 32)]
pub fn clear_last(#[parameters] x: Matrix<f32>, shape: shapes::Shape) {
    assume((x.size[0] > 0) & (x.size[1] % 4 == 0));
    for i in range(lane(), x.size[1]).step_by(shape.rows) {
        x.data.at((x.size[0] - 1) * x.size[1] + i).store(0.0);
    }
}

/// The sum of a row, without what is negative.
#[device]
pub(crate) fn positive_sum<S: Space>(x: Ptr<S, f32>, n: Val<u32>, most: Val<f32>) -> Val<f32> {
    let mut acc = Acc { sum: val(0.0f32), _rows: 1 };
    'items: for i in 0..n {
        let item = x.at(i).load();
        if item < 0.0 {
            continue;
        } else if item == 0.0 && i > 3 {
            break 'items;
        }
        acc.sum += item;
        if acc.sum > most {
            return most;
        }
    }
    acc.sum
}

/// y = sums of x.
#[kernel(threads = 32 * shape.rows)]
pub fn sums(x: Ptr<Global, f32>, mut y: Ptr<Global, f32>, n: Val<u32>, shape: &shapes::Shape, flags: [bool; 2]) {
    let mut row = thread_index();
    while row < shape.rows {
        let mut sum = positive_sum(x.at(row * n), n, val(1e3));
        if let Some(bias) = shape.bias {
            sum += bias;
        }
        for flag in flags {
            match (flag, shape.rows) {
                (true, rows) if rows > 3 => sum *= 2.0,
                (true, _) => continue,
                (false, _) => {}
            }
        }
        if !flags[0] || flags[1] {
            y.store(sum);
        }
        y = y.at(1);
        row += 32 * shape.rows;
    }
    if row == 7 {
        return;
    }
    loop {
        row += 1;
        if row > 99 {
            break;
        }
    }
    y.store(row.cast::<f32>());
}

/// Constructs that take no handles, with compile-time values.
#[kernel(threads = 1)]
fn compile_time_code(x: Ptr<Global, u32>, names: &mut Vec<String>, table: [[u32; 4]; 2], boxed: Box<Option<String>>) {
    let (n, last) = (names.len(), names.len() - 1);
    assert!(n > 0 && table[0][n - 1] < 9);
    assert!(*names[last] == *"b", "{}", names[last]);
    assert!(n.is_multiple_of(2),);
    assert_eq!(names[0], "a");
    assert_ne!(*names[0], *"b", "{n}");
    debug_assert!(matches!(n, 1..=4));
    debug_assert_eq!(names[n - 2..], ["a", "b"]);
    *names.last_mut().unwrap() = "c".to_owned();
    names[last] += "d";
    let longest: &str = &*names.iter().max().unwrap().clone();
    let count = std::collections::HashMap::from([("b".to_owned(), 2u32)])[&"b".to_owned()];
    let owned: Option<String> = *boxed;
    for (row, i) in table.iter().zip(0..) {
        let picked: [u32; 2] = std::array::from_fn(|k| row[k + 1] + table[i][k]);
        x.at(i).store(val(picked[0]) + picked[i] * count);
    }
    while names.len() > 1 && *names[0] != *longest {
        names.pop();
    }
    let mut kind = (n as u32, "b");
    match kind.0 {
        0 => kind.0 = 3,
        more @ 1..=9 if more > 7 => kind.0 += more,
        _ => kind.1 = "c",
    }
    match kind.1 {
        "c" | "d" => {}
        other => names.push(other.to_owned()),
    }
    if let Some(name) = owned
        && names.contains(&name)
    {
        x.store(*table[1].iter().max().unwrap());
    }
}

fn main() {
    let mut names = vec!["a".to_owned(), "b".to_owned()];
    compile_time_code(&mut names, [[1, 2, 3, 4]; 2], Box::new(Some("a".to_owned()))).unwrap();
    assert_eq!(names, ["a"]);

    let shape = shapes::Shape { rows: 4, bias: Some(0.5) };
    let kernel = sums(&shape, [true, false]).unwrap();
    assert_eq!(kernel.threads(), Some(128));
}

//! The constants of the binary interface that the MPI 5 standard defines (chapter 20).

use han::Operator;

use super::{Abi, Flavour, Kind, Status};

pub(super) fn abi() -> Abi {
    Abi {
        flavour: Flavour::Standard,
        comm_world: 0x101,
        comm_self: 0x102,
        comm_null: 0x100,
        datatype_null: 0x200,
        request_null: 0x180,
        op_null: 0x20,
        errors_return: 0x142,
        errors_are_fatal: 0x141,
        byte: 0x247,
        in_place: 1,
        thread_multiple: 4096,
        err_other: 16,
        err_in_status: 19,
        status: Status { bytes: 32, error_at: 8, ignore: 0 },
        combiner_named: 101,
        combiners_f90: 113..=115,
        combiner_value_index: Some(117),
        datatypes: DATATYPES.to_vec(),
        operators: OPERATORS.to_vec(),
        no_operators: Vec::new(),
    }
}

const OPERATORS: &[(usize, Operator)] = &[
    (0x21, Operator::Sum),
    (0x22, Operator::Min),
    (0x23, Operator::Max),
    (0x24, Operator::Prod),
    (0x28, Operator::Band),
    (0x29, Operator::Bor),
    (0x2a, Operator::Bxor),
    (0x30, Operator::Land),
    (0x31, Operator::Lor),
    (0x32, Operator::Lxor),
    (0x38, Operator::Minloc),
    (0x39, Operator::Maxloc),
];

const DATATYPES: &[(usize, Kind)] = &[
    (0x201, Kind::Signed),     // MPI_AINT
    (0x202, Kind::Signed),     // MPI_COUNT
    (0x203, Kind::Signed),     // MPI_OFFSET
    (0x207, Kind::Opaque),     // MPI_PACKED
    (0x208, Kind::Signed),     // MPI_SHORT
    (0x209, Kind::Signed),     // MPI_INT
    (0x20a, Kind::Signed),     // MPI_LONG
    (0x20b, Kind::Signed),     // MPI_LONG_LONG
    (0x20c, Kind::Unsigned),   // MPI_UNSIGNED_SHORT
    (0x20d, Kind::Unsigned),   // MPI_UNSIGNED
    (0x20e, Kind::Unsigned),   // MPI_UNSIGNED_LONG
    (0x20f, Kind::Unsigned),   // MPI_UNSIGNED_LONG_LONG
    (0x210, Kind::Float),      // MPI_FLOAT
    (0x212, Kind::Complex),    // MPI_C_FLOAT_COMPLEX
    (0x213, Kind::Complex),    // MPI_CXX_FLOAT_COMPLEX
    (0x214, Kind::Float),      // MPI_DOUBLE
    (0x216, Kind::Complex),    // MPI_C_DOUBLE_COMPLEX
    (0x217, Kind::Complex),    // MPI_CXX_DOUBLE_COMPLEX
    (0x218, Kind::Logical),    // MPI_LOGICAL
    (0x219, Kind::Signed),     // MPI_INTEGER
    (0x21a, Kind::Float),      // MPI_REAL
    (0x21b, Kind::Complex),    // MPI_COMPLEX
    (0x21c, Kind::Float),      // MPI_DOUBLE_PRECISION
    (0x21d, Kind::Complex),    // MPI_DOUBLE_COMPLEX
    (0x21e, Kind::Opaque),     // MPI_CHARACTER
    (0x220, Kind::LongDouble), // MPI_LONG_DOUBLE
    (0x228, Kind::FloatInt),   // MPI_FLOAT_INT
    (0x229, Kind::DoubleInt),  // MPI_DOUBLE_INT
    (0x22a, Kind::LongInt),    // MPI_LONG_INT
    (0x22b, Kind::TwoInt),     // MPI_2INT
    (0x22c, Kind::ShortInt),   // MPI_SHORT_INT
    (0x230, Kind::TwoReal),    // MPI_2REAL
    (0x231, Kind::TwoReal),    // MPI_2DOUBLE_PRECISION
    (0x232, Kind::TwoInt),     // MPI_2INTEGER
    (0x238, Kind::Bool),       // MPI_C_BOOL
    (0x239, Kind::Bool),       // MPI_CXX_BOOL
    (0x23c, Kind::Opaque),     // MPI_WCHAR
    (0x240, Kind::Signed),     // MPI_INT8_T
    (0x241, Kind::Unsigned),   // MPI_UINT8_T
    (0x243, Kind::Opaque),     // MPI_CHAR
    (0x244, Kind::Signed),     // MPI_SIGNED_CHAR
    (0x245, Kind::Unsigned),   // MPI_UNSIGNED_CHAR
    (0x247, Kind::Byte),       // MPI_BYTE
    (0x248, Kind::Signed),     // MPI_INT16_T
    (0x249, Kind::Unsigned),   // MPI_UINT16_T
    (0x250, Kind::Signed),     // MPI_INT32_T
    (0x251, Kind::Unsigned),   // MPI_UINT32_T
    (0x258, Kind::Signed),     // MPI_INT64_T
    (0x259, Kind::Unsigned),   // MPI_UINT64_T
    (0x2c1, Kind::Signed),     // MPI_INTEGER1
    (0x2c9, Kind::Signed),     // MPI_INTEGER2
    (0x2ca, Kind::Float),      // MPI_REAL2
    (0x2d1, Kind::Signed),     // MPI_INTEGER4
    (0x2d2, Kind::Float),      // MPI_REAL4
    (0x2d9, Kind::Signed),     // MPI_INTEGER8
    (0x2da, Kind::Float),      // MPI_REAL8
    (0x2db, Kind::Complex),    // MPI_COMPLEX8
    (0x2e3, Kind::Complex),    // MPI_COMPLEX16
];

//! How functions get their two names.
//!
//! Programs call `MPI_Bcast`. The Fortran interfaces of Open MPI, and tools that see every call before the MPI does,
//! call `PMPI_Bcast`: those calls come here, too, with handles and special addresses already turned into C's.
//!
//! A program's error handler may leave the MPI function that calls it by an exception of C++. So these functions, and the
//! types by which the library's are called, are `C-unwind`, and what must be undone then is undone by destructors.

/// Defines functions that return an MPI error code, each under its name and its name in the profiling interface.
macro_rules! export {
    ($(fn $name:ident, $profiled:ident ($($argument:ident: $kind:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> std::ffi::c_int $body

        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $profiled($($argument: $kind),*) -> std::ffi::c_int {
            // SAFETY: one function, whose arguments are the caller's own.
            unsafe { $name($($argument),*) }
        }
    )*};
}

pub(crate) use export;

/* Stands for the library by which programs have memory of GPUs: it is known by its name. */
int han_tests_have_no_gpu;

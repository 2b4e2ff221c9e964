/* A program without MPI, as interpreters are: it opens a module that is an MPI program, out of everybody else's sight. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(int, char **) = module ? (int (*)(int, char **))dlsym(module, "run") : NULL;
    if (!run) {
        printf("no module: %s\n", dlerror());
        return 1;
    }
    argv[1] = NULL;
    return run(1, argv);
}

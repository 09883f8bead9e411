// Several processes, on one machine or more: `mpirun -np 4 program`. Every process runs the same program and has one
// device of the job, MPI:0 .. MPI:3; tensors that are sharded over them are spread over the processes.
//
// Requirements of a program: (1) every process builds and computes the same tensors in the same order; the streams of
// random numbers are made equal by devices(). (2) What is cut over the processes (or lies on one) is read by all of them;
// what all of them have may be read by any, once it is realised.
#pragma once
#include <string>
#include <vector>

namespace whit::distributed {

/// Number of this process, 0 .. size() - 1, and of all of them. 0 and 1 when mpirun did not start the program.
int rank();
int size();
/// The device of each process, for Tensor::shard; the default device alone when mpirun did not start the program. The
/// first call gives every process the random seed of process 0, and its share of the machine's cores for threads.
/// errors: Device when OpenMPI's library is missing or does not start
const std::vector<std::string>& devices();
/// Ends all processes of the job, with this exit code. For programs that found an error in one of them.
[[noreturn]] void abort(int exit_code);

}  // namespace whit::distributed

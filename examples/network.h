// The convolutional network of the README and its training step; shared by the demo and the benchmarks.
#pragma once
#include <span>
#include <vector>

#include "whit/nn.h"
#include "whit/tensor.h"

namespace whit {

/// conv 5x5, conv 5x5, batch norm, pool; conv 3x3, conv 3x3, batch norm, pool; linear. For images of 28 x 28.
struct Network {
  nn::Conv2d c1{1, 32, 5}, c2{32, 32, 5}, c3{32, 64, 3}, c4{64, 64, 3};
  nn::BatchNorm n1{32}, n2{64};
  nn::Linear head{576, 10};

  /// shapes: x [batch, 1, 28, 28] -> [batch, 10]
  Tensor operator()(Tensor x) {
    x = n1(c2(c1(x).relu()).relu()).max_pool2d();
    x = n2(c4(c3(x).relu()).relu()).max_pool2d();
    return head(x.flatten(1));
  }
  void visit(nn::Visitor& v) {
    v("c1", c1), v("c2", c2), v("n1", n1), v("c3", c3), v("c4", c4), v("n2", n2), v("head", head);
  }
};

}  // namespace whit

// What the optimiser decides by its cost model and a search may decide otherwise.
//
// Requirement: no alternative changes the order of a sum, so whatever is picked computes the same bits.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace whit::codegen {

/// The alternatives of a kernel, by name ("0.plan": of its first nest). Each question has the model's answer as number 0.
class Decisions {
 public:
  Decisions() = default;
  /// `text` as of str(). What it does not name, or names with a number that there is not, is the model's to say.
  explicit Decisions(std::string_view text);

  /// The number of the alternative to take, of `n`.
  int pick(const std::string& name, int n);
  /// What is not as the model says: "0.plan=3 0.unroll=1", or "".
  std::string str() const;
  /// How many alternatives each question had that came up.
  const std::map<std::string, int>& asked() const { return asked_; }
  /// A copy that answers one question otherwise.
  Decisions with(const std::string& name, int number) const;

 private:
  std::map<std::string, int> answers_{}, asked_{};
};

}  // namespace whit::codegen

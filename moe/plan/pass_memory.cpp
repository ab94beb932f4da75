#include "moe/plan/pass_memory.h"

#include <algorithm>

#include "moe/plan/dense_layers.h"
#include "moe/plan/volumes.h"

namespace moe {
namespace {

double real(int64_t n) { return static_cast<double>(n); }

// Counts elements but where it says bytes.
class PassCount {
 public:
  PassCount(const LayerCase& c, Flow flow, AttentionKept attention)
      : c_(c), l_(c.layer), p_(c.parallel), traits_(traits_of(flow)), attention_(attention) {}

  PassBytes bytes() const {
    const bool attends = attention_.attends;
    const double w = bytes_of(l_.dtype);
    PassBytes pass;
    pass.output = w * output();
    if (attends) {
      pass.kept = w * attention_kept();
      pass.dense = w * attention_meanwhile();
      pass.input_sum = w * m() * (scattered() ? all() : 0);
    }
    if (is_dense(c_)) {
      pass.kept += w * feed_forward_kept();
      pass.moe = w * feed_forward_meanwhile() + fp8_bytes(all(), l_.shared_hidden / p_.mp);
      return pass;
    }
    pass.kept += w * (tokens_kept(attends) + rows_kept() + shared_kept()) + gate_scores();
    pass.moe = w * (tokens_meanwhile() + rows_meanwhile() + shared_meanwhile()) + wire_bytes();
    pass.moe += fp8_bytes(computed(), l_.hidden / p_.esp);
    if (l_.shared_hidden > 0) pass.moe += fp8_bytes(all(), l_.shared_hidden / p_.mp);
    pass.dense += gate_bytes_meanwhile();
    pass.apart = 2 * gate_scores() + w * (mask() + dispatcher_blocks());
    return pass;
  }

 private:
  double m() const { return real(l_.model_dim); }
  double w_ratio() const { return real(bytes_of(sums_type(l_.dtype))) / real(bytes_of(l_.dtype)); }
  double gemms() const { return gemms_of(l_.ffn); }
  bool pre_norm() const { return l_.norm != Norm::none && !is_post(l_.norm); }

  // These count tokens: of the MP group; whose input and output the rank has; that it gates.
  double all() const { return real(l_.batch * l_.seq); }
  double held() const { return all() / (traits_.holds == Tokens::own ? p_.mp : 1); }
  double gated() const {
    if (traits_.gates == Tokens::own) return all() / p_.mp;
    return all() * (traits_.gates == Tokens::esp_groups ? p_.esp : 1);
  }
  bool scattered() const { return held() < all(); }
  bool gathers_gated() const { return !is_dense(c_) && !traits_.gathers_tokens() && gated() > held(); }
  double output() const { return m() * (gathers_gated() ? gated() : held()); }

  // q, k, v and what they mix to, or their gradients. Heads are those of the rank that has most.
  double projected() const {
    const Heads most = most_heads(c_);
    return all() * real(2 * (most.query + most.key_value) * head_width(l_));
  }
  // Attention's input, gathered and normed; what it projects; the softmax of the scores; the hidden state.
  double attention_kept() const {
    const bool keeps = attention_.scores && p_.recompute == Recompute::none;
    const double scores = keeps ? all() * real(most_heads(c_).query * l_.seq) : 0;
    const double hidden = scattered() && (is_dense(c_) || gathers_gated()) ? 0 : held();
    return m() * ((scattered() ? all() : 0) + (pre_norm() ? all() : 0) + hidden) + projected() + scores;
  }
  // This rank's part of a sum over MP, or the gradient of what it gathered; of the hidden state; of what it projects.
  double attention_meanwhile() const {
    const double tokens = all() + (scattered() ? held() : 0);
    return m() * (tokens + (gathers_gated() ? gated() : 0)) + projected();
  }

  double inside(double rows, int64_t hidden, int shards) const { return gemms() * rows * real(hidden) / shards; }
  double inside_meanwhile(double rows, int64_t hidden, int shards) const {
    return (gemms() - 1) * rows * real(hidden) / shards;
  }

  // Rows as FP8 numbers, at most as wide as a weight, and their scales.
  double fp8_bytes(double rows, int64_t hidden) const {
    if (!in_fp8(l_.ffn)) return 0;
    const double most = std::max(m(), real(hidden));
    return rows * (most + most / real(kFp8Block) * real(sizeof(float)));
  }

  // A dense layer's feed-forward: its input, gathered and normed; what lies between its GEMMs.
  double feed_forward_kept() const {
    const double input = (scattered() ? all() : 0) + (l_.norm != Norm::none ? all() : 0);
    return m() * input + inside(all(), l_.shared_hidden, p_.mp);
  }
  double feed_forward_meanwhile() const {
    return m() * (scattered() ? 2 * all() : 0) + inside_meanwhile(all(), l_.shared_hidden, p_.mp);
  }

  // What the gate reads, gathered and normed; the MoE part's sum where a norm is behind it.
  double tokens_kept(bool attends) const {
    double tokens = l_.norm != Norm::none || !attends ? gated() : 0;
    if (attends && gathers_gated()) tokens += gated();
    return m() * (tokens + (is_post(l_.norm) ? gated() : 0));
  }
  double tokens_meanwhile() const {
    const double gradients = (is_post(l_.norm) ? gated() : 0) + (l_.hook != "none" ? gated() : 0);
    return m() * gradients + w_ratio() * gated() * choices();
  }

  double t_rank() const { return planned_rows(c_); }
  // These count rows: of one group of tokens, for all experts; that this rank sends; where its experts compute.
  double of_group() const { return t_rank() * real(l_.experts); }
  double groups() const { return gated() / (all() / p_.mp); }
  double sent() const { return of_group() * (traits_.sends_all_groups() ? groups() : 1); }
  double computed() const { return of_group() * (traits_.sends_all_groups() ? groups() : p_.esp); }
  double gathered_home() const { return traits_.gathers_rows() && p_.mp > 1 ? of_group() * p_.mp : 0; }
  bool moved() const {
    if (traits_.fused()) return p_.ep * p_.esp > 1;
    return traits_.through_peer() ? p_.esp > 1 : p_.ep > 1;
  }

  // The experts' input and what lies between their GEMMs; the rows that came back, for the gate's gradient.
  double rows_kept() const {
    const double back = gathered_home() > 0 ? gathered_home() : sent();
    return m() * (computed() + back) + inside(computed(), l_.hidden, p_.esp);
  }
  // Rows on their way, at each station; what an expert task reads and writes; gradients between the GEMMs.
  double rows_meanwhile() const {
    double stations = sent() + gathered_home() * (traits_.way == Way::over_mp ? 2 : 1);  // MoNTA's may be laid out
    if (traits_.fused() && p_.esp > 1) stations += sent() * p_.esp;
    if (traits_.through_peer() && p_.ep > 1) stations += sent();
    if (moved()) stations += computed();
    return m() * (stations + 2 * computed()) + inside_meanwhile(computed(), l_.hidden, p_.esp);
  }
  // Both sides of one exchange, where rows travel in another type.
  double wire_bytes() const {
    const DType wire = wire_type(l_);
    return wire == l_.dtype ? 0 : 2 * bytes_of(wire) * m() * std::max(sent(), moved() ? computed() : 0);
  }

  // The shared expert: its input, where gathered from MP ranks; what lies between its GEMMs.
  bool gathers_shared() const { return p_.mp > 1 && traits_.gates == Tokens::own; }
  double shared_kept() const {
    if (l_.shared_hidden == 0) return 0;
    return m() * (gathers_shared() ? all() : 0) + inside(all(), l_.shared_hidden, p_.mp);
  }
  double shared_meanwhile() const {
    if (l_.shared_hidden == 0) return 0;
    const double gathers = gathers_shared() ? all() + all() / p_.mp : 0;
    return m() * (all() + gathers) + inside_meanwhile(all(), l_.shared_hidden, p_.mp);
  }

  // A token that is mixed has a score for each of its choices.
  bool mixes() const { return gate_of(l_).choices == Choices::rows; }
  double choices() const { return real(choices_of(c_)); }
  // Scores are in float32 for 16-bit layers, which widen what the gate reads too. A pass has spread and noise, or
  // probabilities, or weights and fill, for itself. Fill has a gradient.
  double gate_scores() const {
    return bytes_of(sums_type(l_.dtype)) * gated() * (mixes() ? choices() : real(l_.experts));
  }
  double gate_bytes_meanwhile() const {
    const DType sums = sums_type(l_.dtype);
    return (mixes() ? 2 : 1) * gate_scores() + (sums == l_.dtype ? 0 : bytes_of(sums) * gated() * m());
  }
  // GShard's order multiplies by a mask of a group's tokens and an expert's rows.
  double mask() const { return l_.order == "gshard" ? all() / p_.mp * t_rank() : 0; }
  // Blocks that 1dh and 2dh change the order of, where an EP group has several nodes and several ranks on each.
  double dispatcher_blocks() const {
    const int on_node = std::min(p_.ep, p_.ep_inside ? p_.ranks_per_node : std::max(1, p_.ranks_per_node / p_.esp));
    if (on_node == 1 || on_node == p_.ep || traits_.fused()) return 0;
    if (l_.dispatcher == "2dh") return 2 * sent() * m();
    return l_.dispatcher == "1dh" ? 2 * sent() * m() * on_node : 0;
  }

  const LayerCase& c_;
  const LayerShape& l_;
  const ParallelShape& p_;
  const FlowTraits& traits_;
  AttentionKept attention_;
};

}  // namespace

PassBytes pass_bytes(const LayerCase& shape, Flow flow, AttentionKept attention) {
  return PassCount(shape, flow, attention).bytes();
}

}  // namespace moe

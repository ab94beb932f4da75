#include "reproduce/published_rows.h"

#include "verbs/csv_rows.h"

namespace moe::reproduce {

std::vector<PublishedCollective> published_collectives() {
  using R = PublishedCollective;
  return verbs::csv_rows<R>("published/nccl", {"gpu", "op", "ranks", "bytes", "seconds"}, &R::gpu, &R::op, &R::ranks,
                            &R::bytes, &R::seconds);
}

std::vector<PublishedLayer> published_layers() {
  using R = PublishedLayer;
  return verbs::csv_rows<R>("published/megatron-moe-layers",
                            {"model", "dispatcher", "tokens_a_rank", "model_dim", "hidden", "experts", "top_k",
                             "shared_hidden", "ranks_of_a_token", "forward_s", "backward_s"},
                            &R::model, &R::dispatcher, &R::tokens_a_rank, &R::model_dim, &R::hidden, &R::experts,
                            &R::top_k, &R::shared_hidden, &R::ranks_of_a_token, &R::forward_s, &R::backward_s);
}

std::vector<PublishedExchange> published_exchanges() {
  using R = PublishedExchange;
  return verbs::csv_rows<R>("published/deepep-h100", {"nodes", "tokens", "model_dim", "top_k", "experts", "dispatch_s"},
                            &R::nodes, &R::tokens, &R::model_dim, &R::top_k, &R::experts, &R::dispatch_s);
}

std::vector<TraceTask> published_trace() {
  using R = TraceTask;
  return verbs::csv_rows<R>("published/deepseek-train-trace", {"task", "micro_batch_phase", "stream", "mean_busy_s"},
                            &R::task, &R::phase, &R::stream, &R::seconds);
}

}  // namespace moe::reproduce

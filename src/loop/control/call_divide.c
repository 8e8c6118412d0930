/* How the rows of a call of a method are divided. The controller finds that out; and a rank, for a call that was made before its rows were there. */
#include "control/crew.h"
#include "control/meshes.h"

#include "base/alloc.h"

/* A worker in a mesh. */
typedef struct mesh_worker {
  int32_t dp_rank, collects;
} mesh_worker;

treadle_status treadle_call_divide(const treadle_class_method *method, int32_t workers,
                                   const treadle_meshes *meshes, const treadle_dispatch_argument *arguments,
                                   size_t count, treadle_dispatch **dispatch_p) {
  const treadle_dispatch_spec spec = {.struct_size = sizeof spec,
                                      .kind = method->dispatch,
                                      .execute = method->execute,
                                      .workers = workers,
                                      .arguments = arguments,
                                      .argument_count = count,
                                      .meshes =
                                          method->dispatch == TREADLE_DISPATCH_ND_MESH ? meshes : NULL,
                                      .mesh = method->mesh,
                                      .auto_padding = method->auto_padding,
                                      .functions = method->functions};
  return treadle_dispatch_create(&spec, dispatch_p);
}

void treadle_call_put_mesh(treadle_message *m, const treadle_class_method *method,
                           const treadle_meshes *meshes) {
  const treadle_mesh_place *places;
  const int32_t workers = treadle_meshes_workers(meshes);
  int32_t dp_size;
  if (method->dispatch != TREADLE_DISPATCH_ND_MESH) return;
  mesh_worker *said = treadle_alloc_array((size_t)workers, sizeof *said);
  if (!said || treadle_meshes_find(meshes, method->mesh, &dp_size, &places)) {
    m->failed = true;
    treadle_free(said);
    return;
  }
  for (int32_t w = 0; w < workers; w++) said[w] = (mesh_worker){places[w].dp_rank, places[w].collects};
  treadle_message_put_bytes(m, said, (size_t)workers * sizeof *said);
  treadle_free(said);
}

treadle_status treadle_call_read_mesh(treadle_message *m, const treadle_class_method *method,
                                      int32_t workers, treadle_meshes **meshes_p) {
  const void *said;
  treadle_status status;
  *meshes_p = NULL;
  if (method->dispatch != TREADLE_DISPATCH_ND_MESH) return TREADLE_OK;
  TRY(treadle_message_array(m, "mesh", sizeof(mesh_worker), (size_t)workers, &said));
  TRY(treadle_meshes_create(workers, meshes_p));
  for (int32_t w = 0; w < workers; w++) {
    const mesh_worker *one = (const mesh_worker *)said + w;
    TRY(treadle_meshes_register(*meshes_p, method->mesh, w, one->dp_rank, one->collects != 0));
  }
out:
  if (status) {
    treadle_meshes_destroy(*meshes_p);
    *meshes_p = NULL;
  }
  return status;
}

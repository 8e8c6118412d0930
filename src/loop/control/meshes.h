/* The meshes of a group of workers, as dispatch reads them. */
#ifndef TREADLE_CONTROL_MESHES_H
#define TREADLE_CONTROL_MESHES_H

#include "treadle_control.h"

typedef struct treadle_mesh_place {
  int32_t dp_rank; /* -1: not registered */
  bool collects;
} treadle_mesh_place;

/* places_p: [workers] of a mesh that treadle_meshes_dp_size has found whole; they live as long as the meshes. */
treadle_status treadle_meshes_find(const treadle_meshes *meshes, const char *name, int32_t *dp_size_p,
                                   const treadle_mesh_place **places_p);
int32_t treadle_meshes_workers(const treadle_meshes *meshes);
/* Mesh number `number`, from 0, as far as it is registered; NULL: there are fewer. */
const char *treadle_meshes_name(const treadle_meshes *meshes, size_t number,
                                const treadle_mesh_place **places_p);

#endif
